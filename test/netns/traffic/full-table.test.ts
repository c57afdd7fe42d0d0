import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { TCP, testEnvironment } from '../harness.ts';
import { waitFor } from '../wait.ts';

const PATIENCE_MS = 600_000;
/** What fills the table comes from there (RFC 2544), and the kernel does not put it out for others. */
const NOBODY = '198.19.0.1';

describe('the kernel’s table of connections', () => {
  const environment = testEnvironment({});
  const read = async (name: string) =>
    Number(await environment.topology.node.output(['cat', `/proc/sys/net/netfilter/nf_conntrack_${name}`]));

  // The limit is one for the machine, and only its first network namespace may change it: so the table is really full.
  test('when it is full, connections go on and new ones are not served; they are as soon as there is room', async () => {
    const { client } = environment;
    const { node } = environment.topology;
    const web = await environment.serve({ name: 'web' });
    const echo = await environment.serve({ name: 'echo', ports: [{ port: 7, target: TCP.echo }] });
    const { connection } = await client.call('open', echo);
    const exchange = async (text: string) => {
      await client.call('write', { connection, text });
      assert.equal(await client.call('read', { connection, bytes: text.length }), text);
    };
    await exchange('before');

    const lines = Array.from({ length: await read('max') }, (_, i) => {
      const from = `198.18.${(i >> 16) & 255}.${(i >> 8) & 255} -d ${NOBODY} --sport ${1024 + (i & 255)} --dport 80`;
      return `-A -p tcp -s ${from} --state ESTABLISHED -u SEEN_REPLY,ASSURED -t 36000\n`;
    });
    const file = environment.temporary('entries');
    writeFileSync(file, lines.join(''));
    // The last ones find no room.
    await node.run(['conntrack', '-R', file], { timeoutMs: PATIENCE_MS });
    assert.ok((await read('count')) >= (await read('max')), 'it is full');

    const attempts = [{ protocol: 'tcp', host: web.host, port: web.port }] as const;
    const attempt = async () => (await client.call('outcomes', { attempts, timeoutMs: 1_000 }))[0];
    assert.equal(await attempt(), 'timeout');
    await exchange('meanwhile');

    await node.output(['conntrack', '-D', '-d', NOBODY], { timeoutMs: PATIENCE_MS });
    await waitFor('new ones to be served', async () => (await attempt())?.startsWith('pod-'));
    await exchange('after');
  });
});
