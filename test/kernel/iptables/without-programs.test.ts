import '../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { type Iptables, IptablesError } from '../../../src/capture/iptables/iptables.ts';
import { IptablesMethod } from '../../../src/capture/iptables/method.ts';
import { iptablesWithoutPrograms } from '../../../src/kernel/iptables/without-programs.ts';
import type { IpFamily } from '../../../src/model/address.ts';
import { systemClock as clock } from '../../../src/util/system-clock.ts';
import { IPV6_NODE, nodeFacts, planText, portal, renderPortals } from '../../capture/fixtures.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';

const FOREIGN = '-A PREROUTING -p tcp -m tcp --dport 7 -j RETURN';

for (const [family, prefix, node, clusterIP] of [
  ['IPv4', 'iptables', nodeFacts(), '10.96.0.1'],
  ['IPv6', 'ip6tables', IPV6_NODE, 'fd00:96::1'],
] as const satisfies readonly (readonly [IpFamily, string, unknown, string])[]) {
  test(`all that iptables-nft has written for ${family} is removed without it, and nothing else`, async () => {
    const run = (program: string, args: readonly string[], input?: string) =>
      execFileSync(program, args, { encoding: 'utf8', input, stdio: ['pipe', 'pipe', 'pipe'] });
    const iptables = (await iptablesWithoutPrograms('nft')) as Iptables;
    const method = new IptablesMethod({ iptables, isLocal: () => false, clock, log: new RecordingLog() });
    assert.equal(await method.remove(family, { kubeProxys: false }), undefined);
    const portals = Array.from({ length: 300 }, (_, i) =>
      portal({ name: `shop/web-${i}`, port: 80 + i, clusterIPs: [clusterIP], nodePort: 30_000 + i }),
    );
    const { rules } = renderPortals(portals, node);
    for (const table of ['nat', 'filter'] as const) {
      run(`${prefix}-nft-restore`, ['--noflush'], planText(table, '', rules));
    }
    run(`${prefix}-nft`, ['-t', 'nat', ...FOREIGN.split(' ')]);
    assert.deepEqual(await method.remove(family, { kubeProxys: false }), []);
    const left = run(`${prefix}-nft-save`, []).split('\n');
    assert.deepEqual(
      left.filter((line) => /KUBE|^-A/.test(line)),
      [FOREIGN],
    );
    await assert.rejects(iptables.restore(family, `*nat\n${FOREIGN}\nCOMMIT\n`), IptablesError);
  });

  test(`what iptables-legacy has written for ${family} is found without it, and stays`, async () => {
    const run = (...args: readonly string[]) => execFileSync(`${prefix}-legacy`, args, { encoding: 'utf8' });
    const iptables = (await iptablesWithoutPrograms('legacy')) as Iptables;
    const method = new IptablesMethod({ iptables, isLocal: () => false, clock, log: new RecordingLog() });
    const remove = (kubeProxys: boolean) => method.remove(family, { kubeProxys });
    assert.equal(await remove(true), undefined);
    const tables = `/proc/net/${prefix.replace('tables', '')}_tables_names`;
    assert.doesNotMatch(readFileSync(tables, 'utf8'), /nat/, 'no look makes a table');
    run('-t', 'nat', '-N', 'FOREIGN');
    run('-t', 'nat', ...FOREIGN.split(' '));
    assert.equal(await remove(true), undefined);
    run('-t', 'nat', '-N', 'KUBE-SERVICES');
    assert.equal(await remove(false), undefined, 'of kube-proxy');
    await assert.rejects(remove(true), /table nat: only the programs of iptables-legacy can remove it: install them/);
    run('-t', 'nat', '-X', 'KUBE-SERVICES');
    run('-t', 'nat', '-N', 'KUBE-PORTALS-CONTAINER');
    await assert.rejects(remove(false), /table nat: only the programs of iptables-legacy can remove it/);
    assert.match(run('-t', 'nat', '-S'), /-N FOREIGN\n-N KUBE-PORTALS-CONTAINER\n/);
  });
}
