import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { chainsOf, fixedChains } from '../../../src/capture/iptables/chain-layout.ts';
import { isOurs } from '../../../src/capture/iptables/chains.ts';
import { type ChainRules, jumpTarget, parseDump } from '../../../src/capture/iptables/dump.ts';
import { installedPorts } from '../../../src/capture/iptables/installed.ts';
import type { WantedChain } from '../../../src/capture/iptables/plan.ts';
import { cleanupText, nodeFacts, planOf, portal, Rules } from '../../capture/fixtures.ts';
import { FakeIptables } from '../../fakes/fake-iptables.ts';
import { mutateOne } from '../mutate.ts';
import { checkLine, checkName } from '../rule-grammar.ts';
import type { OpenTarget } from '../target.ts';

/* The text of iptables-save → the local ports that it names, and the lines that make it what is wanted. */

const NODE = nodeFacts();
const RULES = new Rules(NODE, [portal({ name: 'default/web', clusterIPs: ['10.96.0.1'], nodePort: 30_080 })]);
const TABLES = ['nat', 'filter'] as const;

export const open: OpenTarget = () => ({
  seeds: ['0.0.0.0', '192.168.50.10'].map((bind) => {
    const file = new URL(`../../golden/kube-proxy-userspace-bind-${bind}.rules`, import.meta.url);
    return Buffer.from(readFileSync(file, 'utf8').replaceAll(/<proxy port (\d)>/g, '4000$1'));
  }),
  make: mutateOne,

  async run(input) {
    const text = input.toString();
    const tables = parseDump(text);
    for (const table of TABLES) {
      const installed: ChainRules = tables.get(table) ?? new Map();
      for (const { name, localPort } of installedPorts(installed, 0)) {
        checkName(name);
        assert.ok(localPort >= 1 && localPort <= 65_535, `port ${localPort}`);
      }
      checkCleanup(cleanupText(table, text));
      const plan = planOf(table, text, wantedIn(table));
      for (const line of plan?.split('\n').slice(1, -2) ?? []) checkPlanned(line, table, installed);
      if (plan !== undefined) await checkResult(table, installed, plan);
    }
  },
});

function checkCleanup(plan = ''): void {
  for (const line of plan.split('\n')) {
    assert.match(line, /^(?:\*(?:nat|filter)|:KUBE-\S+ - \[0:0\]|-D \S+ .*|-X KUBE-\S+|COMMIT|)$/s);
  }
}

function wantedIn(table: 'nat' | 'filter'): readonly WantedChain[] {
  const chains = [...fixedChains(table, 'IPv4'), ...chainsOf(RULES.trees(table), { table, family: 'IPv4' })];
  return chains.map(({ name, rules, jumps }) => ({ name, specs: [...rules.map(({ spec }) => spec), ...jumps] }));
}

/** Only a rule that leads to a chain of ours may go from a chain of others. */
function checkPlanned(line: string, table: 'nat' | 'filter', installed: ChainRules): void {
  const [, chain = '', spec = ''] = /^-D (\S+) ([^\n]*)$/.exec(line) ?? [];
  const isThere = installed.get(chain)?.includes(spec) && isOurs(table, jumpTarget(spec) ?? '');
  if (!isThere) checkLine(line, 'IPv4');
}

/** Where the dump is one that a kernel could give, its rules are as wanted afterwards. */
async function checkResult(table: 'nat' | 'filter', installed: ChainRules, plan: string): Promise<void> {
  // The fake reads line by line, and no kernel gives a quote that is not closed.
  const isOdd = (text: string) => text.includes('\n') || text.replaceAll(/\\./g, '').split('"').length % 2 === 0;
  if ([...installed].flat(2).some(isOdd)) return;
  const kernel = new FakeIptables();
  const state = [...installed].flatMap(([name, specs]) => specs.map((spec) => `-A ${name} ${spec}`));
  const made = [...installed.keys()].filter((name) => /^[^A-Z]|-/.test(name)).map((name) => `:${name} - [0:0]`);
  try {
    await kernel.restore('IPv4', [`*${table}`, ...made, ...state, 'COMMIT', ''].join('\n'));
  } catch {
    return;
  }
  await kernel.restore('IPv4', plan);
  const left = planOf(table, await kernel.save('IPv4', table), wantedIn(table));
  assert.equal(left, undefined, 'one transaction is enough');
}
