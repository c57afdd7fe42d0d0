import assert from 'node:assert/strict';
import { mkdirSync, symlinkSync } from 'node:fs';
import { describe, test } from 'node:test';
import type { Captured } from '../captured.ts';
import { isFast, TCP, testEnvironment } from '../harness.ts';
import { FLAVOUR, type Flavour, Iptables } from '../iptables.ts';
import { PROGRAM } from '../proxy.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

describe('a proxy that chooses how it captures', () => {
  const environment = testEnvironment('fresh');
  const writeService = () => {
    const clusterIP = environment.clusterIP();
    const ports = [{ port: 80, target: TCP.name }];
    environment.write({ name: 'web', clusterIP, ports, endpoints: POD_ADDRESSES });
    return clusterIP;
  };
  /** A new folder for PATH with these programs alone. */
  const programs = async (folder: string, ...names: readonly string[]) => {
    const path = environment.temporary(folder);
    mkdirSync(path);
    const add = async (name: string) => {
      const found = await environment.topology.node.output(['sh', '-c', `command -v ${name}`]);
      symlinkSync(found.trim(), `${path}/${name}`);
    };
    for (const name of names) await add(name);
    return { path, add };
  };
  const answers = (host: string) => async () => {
    const { name } = await environment.client.call('request', { host, port: 80 });
    return /^pod-/.test(name);
  };

  const { skip } = isFast ? { skip: false } : { skip: 'only the fast engine hands connections over' };
  test('moves to iptables by an upgrade once that is there, and no client notices', { skip }, async () => {
    const { path, add } = await programs('only-nft', 'nft');
    const host = writeService();
    await environment.startProxy({ args: ['--capture', 'auto'], through: ['env', `PATH=${path}`] });
    const portBy = async (captured: Captured) => (await captured.portals())[0]?.localPort;
    const { nft, iptables } = environment;
    const port = await waitFor('nft captures', () => portBy(nft));
    for (const name of iptablesPrograms(FLAVOUR)) await add(name);
    const requests = environment.client.call('requests', { host, port: 80, count: 500 });
    environment.proxy.kill('SIGHUP');
    const begun = () => environment.proxy.lines({ msg: 'Starting a successor' })[0];
    const successor = Number((await waitFor('a successor', begun))['pid']);
    try {
      const isMoved = async () => (await portBy(iptables)) === port && (await portBy(nft)) === undefined;
      await waitFor('only iptables captures, with the same local port', isMoved);
      assert.deepEqual((await requests).failures, {});
      assert.match((await environment.client.call('request', { host, port: 80 })).name, /^pod-/);
    } finally {
      process.kill(successor, 'SIGKILL');
    }
    await environment.proxy.exited();
  });

  test('removes the nft tables of a previous run where the program nft is gone', async () => {
    const host = writeService();
    const before = await environment.startProxy({ args: ['--capture', 'nft'] });
    await waitFor('nft captures', answers(host));
    await before.stop();
    const { path } = await programs('only-iptables', ...iptablesPrograms(FLAVOUR));
    await environment.startProxy({ args: ['--capture', 'auto'], through: ['env', `PATH=${path}`] });
    await waitFor('the table is gone', async () => (await environment.nft.ours()).length === 0);
    assert.ok(await answers(host)());
    assert.notDeepEqual(await environment.iptables.portals(), []);
  });

  test('removes the rules of iptables-nft where its programs are gone, and so does --cleanup', async () => {
    const { node } = environment.topology;
    const nft = new Iptables(node, 'nft');
    const ours = () => nft.ours();
    const host = writeService();
    const byIptables = ['--capture', 'iptables', '--iptables-mode', 'nft'];
    const first = await environment.startProxy({ args: byIptables });
    await waitFor('iptables-nft captures', answers(host));
    await nft.must('-t nat -A PREROUTING -p tcp --dport 7 -j RETURN');
    await first.stop();
    const { path } = await programs('without-iptables', 'nft');
    const through = ['env', `PATH=${path}`];
    const second = await environment.startProxy({ args: ['--capture', 'auto', '--iptables-mode', 'auto'], through });
    await waitFor('the rules are gone', async () => (await ours()).length === 0);
    assert.ok(await answers(host)());
    await second.stop();
    const third = await environment.startProxy({ args: byIptables });
    await waitFor('iptables-nft captures', async () => (await ours()).length > 0);
    await third.stop();
    await node.output([...through, PROGRAM, '--cleanup']);
    assert.deepEqual(await ours(), []);
    assert.match((await nft.save()).join('\n'), /-A PREROUTING -p tcp -m tcp --dport 7 -j RETURN/);
  });

  for (const [now, args] of Object.entries({
    nft: ['--capture', 'nft', '--iptables-mode', 'auto'],
    'iptables-nft': ['--capture', 'iptables', '--iptables-mode', 'nft'],
  })) {
    test(`removes the rules of iptables-legacy where ${now} captures after it`, async () => {
      const legacy = new Iptables(environment.topology.node, 'legacy');
      const ours = () => legacy.ours();
      const host = writeService();
      const before = await environment.startProxy({ args: ['--capture', 'iptables', '--iptables-mode', 'legacy'] });
      await waitFor('iptables-legacy captures', answers(host));
      assert.notDeepEqual(await ours(), []);
      await before.stop();
      await environment.startProxy({ args });
      await waitFor('the rules are gone', async () => (await ours()).length === 0);
      assert.ok(await answers(host)());
    });
  }
});

function iptablesPrograms(flavour: Flavour): readonly string[] {
  return ['iptables', 'ip6tables'].flatMap((name) =>
    ['', '-save', '-restore'].map((verb) => `${name}-${flavour}${verb}`),
  );
}
