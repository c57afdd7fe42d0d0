import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { findRefused } from '../../../src/capture/iptables/find-refused.ts';
import type { Rule } from '../../../src/capture/iptables/rule.ts';
import { nodeFacts, portal, renderPortals } from '../fixtures.ts';

/** 1,000 Services with a ClusterIP and an external IP each, every tenth on UDP: 6,000 rules in 14 shapes. */
const RULES = renderPortals(
  Array.from({ length: 1000 }, (_, i) =>
    portal({
      name: nameOf(i),
      protocol: i % 10 === 0 ? 'UDP' : 'TCP',
      localPort: 30_000 + i,
      clusterIPs: [`10.96.${i >> 8}.${i & 255}`],
      externalIPs: [`203.0.${i >> 8}.${i & 255}`],
    }),
  ),
  nodeFacts(),
).rules.filter((rule) => !rule.spec.includes('-j KUBE-'));

async function search(isRefused: (rule: Rule) => boolean): Promise<{ refused: readonly Rule[]; probes: number }> {
  let probes = 0;
  const refused = await findRefused(RULES, async (rules) => {
    assert.notEqual(rules.length, 0, 'a probe of nothing proves nothing');
    probes++;
    return !rules.some(isRefused);
  });
  return { refused, probes };
}

describe('the search for refused rules', () => {
  test('ends after one probe when all of them are accepted', async () => {
    assert.deepEqual(await search(() => false), { refused: [], probes: 1 });
  });

  test('finds one among thousands in a few probes', async () => {
    const { refused, probes } = await search(
      (rule) => rule.spec.includes('-d 10.96.2.17/32') && rule.chain.startsWith('KUBE-USP-PB-'),
    );
    assert.deepEqual(
      refused.map((rule) => rule.owner),
      [nameOf(529)],
    );
    assert.ok(probes < 40, `${probes} probes`);
  });

  test('finds all rules with a match that the kernel lacks in a few probes', async () => {
    const isForUdp = (rule: Rule) => rule.spec.includes('-m udp');
    const { refused, probes } = await search(isForUdp);
    assert.deepEqual(new Set(refused), new Set(RULES.filter(isForUdp)));
    assert.equal(refused.length, 400 + 2);
    assert.ok(probes < 25, `${probes} probes`);
  });

  test('finds several at once, the first and the last of a kind among them', async () => {
    const owners = new Set<string>([1, 10, 500, 999].map(nameOf));
    const isBad = ({ owner }: Rule) => owner !== undefined && owners.has(owner);
    const { refused } = await search(isBad);
    assert.deepEqual(new Set(refused), new Set(RULES.filter(isBad)));
  });

  test('finds nothing when a probe fails', async () => {
    const error = new Error('locked');
    await assert.rejects(
      findRefused(RULES, () => Promise.reject(error)),
      error,
    );
  });
});

/** Without digits, as most names are. */
function nameOf(n: number): string {
  return `ns/${String(n).replace(/\d/g, (digit) => 'abcdefghij'[Number(digit)] ?? '')}`;
}
