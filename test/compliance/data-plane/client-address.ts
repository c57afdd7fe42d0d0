import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { parseAddress } from '../../../src/model/address.ts';
import type { ClientFacts, KeptAddresses } from '../../../src/model/client-address.ts';
import type { Endpoint } from '../../../src/model/endpoint.ts';
import { listenSpec } from '../../support/listen-spec.ts';
import { backends, endpointAt, type Rig, type RigFactory } from './harness.ts';
import { BRIDGE, type Pod, UPLINK, withPods } from './pods.ts';

const FAMILIES = ['IPv4', 'IPv6'] as const;
type Family = (typeof FAMILIES)[number];

const EVERYBODY: KeptAddresses = { pods: 'all', others: 'all', clusterIPs: [] };

/** At which the pods that serve say who asks. */
const PORT = 8080;

const FACTS: ClientFacts = {
  families: FAMILIES,
  nodeAddresses: [...Object.values(BRIDGE), ...Object.values(UPLINK)].map((each) => parseAddress(each)!),
};

export function clientAddressTests(makeRig: RigFactory): void {
  const pods = withPods();
  before(async () => {
    for (const { agent } of [pods.server, pods.otherServer]) {
      await agent.call('listenTcp', { port: PORT, mode: 'echo', name: '', host: '::' });
    }
  });

  let lastService = 0;
  const serve = async (
    rig: Rig,
    endpoints: readonly Endpoint[],
    { family = 'IPv4' as Family, kept = EVERYBODY, protocol = 'TCP' as 'TCP' | 'UDP' } = {},
  ) => {
    const name = `test/kept-${++lastService}` as const;
    const spec = listenSpec({ name, protocol, family, address: family === 'IPv4' ? '0.0.0.0' : '::', port: 0 });
    return { name, port: await rig.plane.open(spec, { ...backends(endpoints), keptAddresses: kept }) };
  };
  const echo = async ({ agent }: Pod, host: string, port: number, localPort?: number) => {
    const opened = await agent.call('open', { host, port, ...(localPort !== undefined && { localPort }) });
    agent.call('write', { connection: opened.connection, text: 'hello' });
    assert.equal(await agent.call('read', { connection: opened.connection, bytes: 5 }), 'hello');
    return opened;
  };
  const seenBy = async ({ agent }: Pod) =>
    (await agent.call('seen', { port: PORT })).connections.map(({ remote }) => remote.replace('::ffff:', ''));

  for (const family of FAMILIES) {
    test(`${family}: an endpoint sees a client's address and port over TCP`, async (t) => {
      const rig = await makeRig(t);
      rig.plane.knowClients(FACTS);
      const { port } = await serve(rig, [endpointAt(pods.server[family], PORT)], { family });
      const { localPort } = await echo(pods.client, BRIDGE[family], port);
      const seen = await seenBy(pods.server);
      assert.ok(seen.includes(`${pods.client[family]}:${localPort}`), `${localPort}: ${seen}`);
    });
  }
}
