import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { Agent } from '../agent.ts';
import { PEERS, TCP, testEnvironment, UDP } from '../harness.ts';
import { FLAVOUR } from '../iptables.ts';
import { addIpv6, IPV6 } from '../ipv6.ts';
import { type SliceEndpoint, serviceObjects, sliceObject } from '../manifests.ts';
import {
  BRIDGE_ADDRESS,
  CLIENT_ADDRESS,
  NODE_ADDRESS,
  OTHER_POD,
  OUTSIDE_ADDRESS,
  POD_ADDRESSES,
  UNNUMBERED,
} from '../topology.ts';
import { waitFor } from '../wait.ts';

const HERE = 'node-a';
const ELSEWHERE = 'node-b';
const CLUSTER_CIDR = ['--cluster-cidr', '10.244.0.0/16,fd00:244::/32'];

/** What has an address in each family. */
const ADDRESSES = {
  IPv4: {
    client: CLIENT_ADDRESS,
    pods: POD_ADDRESSES,
    unnumbered: UNNUMBERED.IPv4,
    other: OTHER_POD.IPv4,
    outside: OUTSIDE_ADDRESS,
    node: NODE_ADDRESS,
    bridge: BRIDGE_ADDRESS,
    clusterIP: (n: number) => `10.96.3.${n}`,
    external: (n: number) => `203.0.113.${n}`,
  },
  IPv6: {
    client: IPV6.client,
    pods: IPV6.pods,
    unnumbered: UNNUMBERED.IPv6,
    other: OTHER_POD.IPv6,
    outside: IPV6.outside,
    node: IPV6.node,
    bridge: IPV6.bridge,
    clusterIP: (n: number) => `fd00:96::${n}`,
    external: (n: number) => `2001:db8::${n}`,
  },
} as const;
const FAMILIES = ['IPv4', 'IPv6'] as const;
type Family = (typeof FAMILIES)[number];

interface Wanted {
  /** Of every address, and of the NodePort. */
  readonly n: number;
  readonly endpoints: readonly ((at: (typeof ADDRESSES)[Family]) => SliceEndpoint)[];
  readonly clientAddress?: string;
  readonly spec?: object;
  /** Only cluster IPs. */
  readonly isInternal?: true;
}

const POD_1 = (at: (typeof ADDRESSES)[Family]) => ({ address: at.pods[0], nodeName: HERE });
const POD_2 = (at: (typeof ADDRESSES)[Family]) => ({ address: at.pods[1], nodeName: HERE });
const POD_B = (at: (typeof ADDRESSES)[Family]) => ({ address: at.other, nodeName: ELSEWHERE });

const LOCAL = { externalTrafficPolicy: 'Local' };
const nodePortOf = (n: number) => 30_300 + n;

/** A Service of both families with a cluster IP, and with every external kind of address. */
function objectsOf(name: string, { n, endpoints, clientAddress, spec, isInternal }: Wanted): object[] {
  const of = (what: 'clusterIP' | 'external', number: number) => FAMILIES.map((each) => ADDRESSES[each][what](number));
  const external = isInternal ? {} : { externalIPs: of('external', n), loadBalancerIPs: of('external', 100 + n) };
  const ports = PEERS.map((port) => ({ ...port, ...(isInternal ? {} : { nodePort: nodePortOf(n) }) }));
  const clusterIPs = of('clusterIP', n);
  const [service] = serviceObjects({
    ...{ name, clusterIP: clusterIPs[0] as string, ports, ...external },
    spec: { clusterIPs, ...spec },
  });
  const annotations = clientAddress && { 'kube-userspace-proxy/client-address': clientAddress };
  const { metadata, ...rest } = service as { metadata: object };
  return [
    { ...rest, metadata: { ...metadata, ...(annotations && { annotations }) } },
    ...FAMILIES.map((family) =>
      sliceObject(
        name,
        PEERS,
        endpoints.map((each) => each(ADDRESSES[family])),
        family,
      ),
    ),
  ];
}

describe(`whose address endpoints see, on iptables-${FLAVOUR}`, { timeout: 900_000 }, () => {
  const environment = testEnvironment('fresh');
  let unnumbered: Agent;

  before(async () => {
    await addIpv6(environment);
    const { topology, pods } = environment;
    unnumbered = new Agent(await topology.addUnnumberedPod(), 'unnumbered');
    const other = new Agent((await topology.addNode()).pod, 'pod-b');
    const listen = async (pod: Agent, host: string) => {
      const { name } = pod;
      await pod.call('listenTcp', { port: TCP.peer, mode: 'peer', name, host });
      await pod.call('listenUdp', { port: UDP['udp-peer'], mode: 'udp-peer', name, host });
    };
    await Promise.all(pods.map((pod, index) => listen(pod, IPV6.pods[index] as string)));
    await listen(other, OTHER_POD.IPv4);
    await listen(other, OTHER_POD.IPv6);
  });

  function write(name: string, wanted: Wanted): void {
    environment.manifests.write(`${name}.yaml`, objectsOf(name, wanted));
  }

  async function start(...args: readonly string[]): Promise<void> {
    await environment.startProxy({ args: ['--hostname-override', HERE, ...args] });
  }

  type Row = readonly [client: Agent, host: string, port: number, seen: readonly string[]];

  async function expect(rows: readonly Row[]): Promise<void> {
    const wrong: string[] = [];
    for (const [from, host, port, seen] of rows) {
      const outcomes = await environment.outcomes(from, host, port);
      const [is, should] = [outcomes.join(' '), seen.toSorted().join(' ')];
      if (is !== should) wrong.push(`${from.name} to ${host}:${port}: ${is}, not ${should}`);
    }
    assert.deepEqual(wrong, [], environment.proxy.tail());
  }

  for (const family of FAMILIES) {
    const at = ADDRESSES[family];
    test(`each way in, over ${family}`, async () => {
      const { client, node, outside, pods } = environment;
      await start(...CLUSTER_CIDR);
      write('cluster', { n: 1, endpoints: [POD_1] });
      write('local', { n: 2, endpoints: [POD_1, POD_B], spec: LOCAL });
      write('far', { n: 3, endpoints: [POD_B] });
      write('pair', { n: 4, endpoints: [POD_1, POD_2] });
      write('quiet', { n: 5, endpoints: [POD_1], spec: LOCAL, clientAddress: 'node' });
      for (const n of [1, 2, 3, 4, 5]) {
        await waitFor(
          `Service ${n}`,
          async () => !(await environment.outcomes(client, at.clusterIP(n), 80, 1_000)).includes('timeout'),
        );
      }
      const [clusterIP, external, balanced] = [at.clusterIP, at.external, (n: number) => at.external(100 + n)];
      const aPod = `${at.client}@pod-1`;
      const theNode = `${at.bridge}@pod-1`;
      const everywhere = [`${at.client}@pod-1`, `${at.client}@pod-b`];
      await expect([
        // To cluster IPs: pods alone.
        [client, clusterIP(1), 80, [aPod]],
        [client, clusterIP(3), 80, [`${at.client}@pod-b`]],
        [unnumbered, clusterIP(1), 80, [`${at.unnumbered}@pod-1`]],
        [outside, clusterIP(1), 80, [theNode]],
        [node, clusterIP(1), 80, [theNode]],
        // An endpoint's own address would not come back.
        [pods[0], clusterIP(4), 80, [theNode, `${at.pods[0]}@pod-2`]],
        // External addresses under the policy Cluster: nobody, at addresses that no node has, either.
        [outside, at.node, nodePortOf(1), [theNode]],
        [outside, external(1), 80, [theNode]],
        [outside, balanced(1), 80, [theNode]],
        [client, at.node, nodePortOf(1), [theNode]],
        [client, external(1), 80, [theNode]],
        [client, balanced(1), 80, [theNode]],
        // Under the policy Local: everybody but the node.
        [outside, at.node, nodePortOf(2), [`${at.outside}@pod-1`]],
        [outside, external(2), 80, [`${at.outside}@pod-1`]],
        [outside, balanced(2), 80, [`${at.outside}@pod-1`]],
        [client, at.node, nodePortOf(2), everywhere],
        [client, external(2), 80, everywhere],
        [client, balanced(2), 80, everywhere],
        [client, clusterIP(2), 80, everywhere],
        [node, at.node, nodePortOf(2), [theNode, `${at.node}@pod-b`]],
        // By annotation.
        [client, clusterIP(5), 80, [theNode]],
        [outside, at.node, nodePortOf(5), [theNode]],
      ]);
    });

    test(`the node by --client-address, and a client by annotation, over ${family}`, async () => {
      await start('--client-address', 'node');
      write('plain', { n: 1, endpoints: [POD_1], isInternal: true });
      write('asking', { n: 2, endpoints: [POD_1], isInternal: true, clientAddress: 'preserve' });
      const { client, outside } = environment;
      await environment.until(client, at.clusterIP(1), 80, [`${at.bridge}@pod-1`]);
      await environment.until(client, at.clusterIP(2), 80, [`${at.client}@pod-1`]);
      // Without --cluster-cidr every client counts as a pod, as with kube-proxy.
      await expect([[outside, at.clusterIP(2), 80, [`${at.outside}@pod-1`]]]);
      // A change of the annotation takes effect for the next connection.
      write('plain', { n: 1, endpoints: [POD_1], isInternal: true, clientAddress: 'preserve' });
      await environment.until(client, at.clusterIP(1), 80, [`${at.client}@pod-1`]);
    });
  }

  for (const family of FAMILIES) {
    test(`the node for clients that policy routing sends another way, over ${family}`, async () => {
      await start();
      write('far', { n: 1, endpoints: [POD_B], isInternal: true });
      const at = ADDRESSES[family];
      const { client, topology } = environment;
      await environment.until(client, at.clusterIP(1), 80, [`${at.client}@pod-b`]);
      // As the AWS CNI does for pods on a further network interface.
      const rule = (verb: string) =>
        topology.node.output(['ip', family === 'IPv4' ? '-4' : '-6', 'rule', verb, 'from', at.client, 'lookup', '100']);
      await rule('add');
      await environment.until(client, at.clusterIP(1), 80, [`${at.node}@pod-b`]);
      await rule('del');
      await environment.until(client, at.clusterIP(1), 80, [`${at.client}@pod-b`]);
    });
  }

  test('the node behind cluster IPs by --masquerade-all', async () => {
    await start('--masquerade-all');
    write('local', { n: 1, endpoints: [POD_1], spec: LOCAL });
    const at = ADDRESSES.IPv4;
    await environment.until(environment.client, at.clusterIP(1), 80, [`${at.bridge}@pod-1`]);
    await expect([[environment.outside, at.node, nodePortOf(1), [`${at.outside}@pod-1`]]]);
  });
});
