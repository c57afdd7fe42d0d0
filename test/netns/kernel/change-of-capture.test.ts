import assert from 'node:assert/strict';
import { mkdirSync, symlinkSync } from 'node:fs';
import { describe, test } from 'node:test';
import { isFast, TCP, testEnvironment } from '../harness.ts';
import { FLAVOUR } from '../iptables.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

describe('a proxy that chooses how it captures', () => {
  const environment = testEnvironment('fresh');

  const { skip } = isFast ? { skip: false } : { skip: 'only the fast engine hands connections over' };
  test('moves to iptables by an upgrade once that is there, and no client notices', { skip }, async () => {
    const path = environment.temporary('path');
    mkdirSync(path);
    const add = async (name: string) => {
      const found = await environment.topology.node.output(['sh', '-c', `command -v ${name}`]);
      symlinkSync(found.trim(), `${path}/${name}`);
    };
    await add('nft');
    const host = environment.clusterIP();
    environment.write({
      name: 'web',
      clusterIP: host,
      ports: [{ port: 80, target: TCP.name }],
      endpoints: POD_ADDRESSES,
    });
    await environment.startProxy({ args: ['--capture', 'auto'], through: ['env', `PATH=${path}`] });
    const portOf = (texts: readonly string[]) => /(\d+)$/.exec(texts.find((text) => text.includes(host)) ?? '')?.[1];
    const byNft = async () => portOf(await environment.nft.elements('portals'));
    const byIptables = async () => portOf(await environment.iptables.rules('KUBE-PORTALS-CONTAINER'));
    const port = await waitFor('nft captures', byNft);
    for (const name of ['iptables', 'ip6tables']) {
      for (const verb of ['', '-save', '-restore']) await add(`${name}-${FLAVOUR}${verb}`);
    }
    const requests = environment.client.call('requests', { host, port: 80, count: 500 });
    environment.proxy.kill('SIGHUP');
    const begun = () => environment.proxy.lines({ msg: 'Starting a successor' })[0];
    const successor = Number((await waitFor('a successor', begun))['pid']);
    try {
      const isMoved = async () => (await byIptables()) === port && (await byNft()) === undefined;
      await waitFor('only iptables captures, with the same local port', isMoved);
      assert.deepEqual((await requests).failures, {});
      assert.match((await environment.client.call('request', { host, port: 80 })).name, /^pod-/);
    } finally {
      process.kill(successor, 'SIGKILL');
    }
    await environment.proxy.exited();
  });
});
