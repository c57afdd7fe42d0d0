import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { ClientAddressPolicy, ClientFacts } from '../../../src/model/client-address.ts';
import { seenAddress, type TakenConnection } from '../../../src/operate/view/seen-address.ts';
import { address, cidr, ENDPOINT, servicePort } from '../../support/model.ts';

const POD = address('10.244.1.20');
const OUTSIDE = address('198.51.100.7');
const NODE = address('192.168.50.10');
const PRESERVE: ClientAddressPolicy = { clientAddress: 'preserve', masqueradeAll: false };
const FACTS: ClientFacts = { nodeAddresses: [NODE], families: ['IPv4'] };
const WITH_PODS: ClientFacts = { ...FACTS, podCidrs: [cidr('10.244.0.0/16')] };

const [CLUSTER_IP] = servicePort().clusterIPs;
const LOCAL = { endpoints: [ENDPOINT], internal: false, external: true };

describe('what an endpoint sees of a client', () => {
  const seen = (
    connection: Partial<TakenConnection>,
    given: { readonly policy?: ClientAddressPolicy; readonly facts?: ClientFacts | undefined } = {},
  ) => {
    const { policy, facts } = { policy: PRESERVE, facts: FACTS, ...given };
    const usual = { servicePort: servicePort(), set: 'own', client: POD, isOwn: false, endpoint: ENDPOINT } as const;
    const taken: TakenConnection = { ...usual, destination: CLUSTER_IP!, ...connection };
    const answer = seenAddress(taken, { policy, facts: () => facts });
    return answer.address === 'client' ? 'the client' : answer.reason;
  };

  test('a pod that asks a cluster IP, and others where pods are not known', () => {
    assert.equal(seen({}), 'the client');
    assert.equal(seen({ client: OUTSIDE }), 'the client');
    assert.equal(seen({}, { facts: WITH_PODS }), 'the client');
    assert.equal(seen({ client: OUTSIDE }, { facts: WITH_PODS }), 'the client is not a pod');
  });

  test('the policy of external addresses decides', () => {
    const cluster = servicePort({ nodePort: 30_080 });
    assert.equal(seen({ servicePort: cluster, destination: NODE }), 'externalTrafficPolicy is Cluster');
    assert.equal(seen({ servicePort: cluster }), 'the client');
    const local = servicePort({ nodePort: 30_080, local: LOCAL });
    const fromOutside = { client: OUTSIDE, destination: NODE, set: 'local' } as const;
    assert.equal(seen({ servicePort: local, ...fromOutside }, { facts: WITH_PODS }), 'the client');
    assert.equal(seen({ servicePort: local, destination: NODE }, { facts: WITH_PODS }), 'the client');
  });

  test('what was asked for decides, and is named', () => {
    const node: ClientAddressPolicy = { ...PRESERVE, clientAddress: 'node' };
    const asking = (clientAddress: 'preserve' | 'node') => ({
      servicePort: servicePort({ options: { clientAddress } }),
    });
    assert.equal(seen({}, { policy: node }), '--client-address says so');
    assert.equal(seen(asking('preserve'), { policy: node }), 'the client');
    assert.equal(seen(asking('node')), 'the annotation kube-userspace-proxy/client-address says so');
    assert.equal(seen({}, { policy: { ...PRESERVE, masqueradeAll: true } }), '--masquerade-all says so');
  });

  test('never the node itself, nor the endpoint, nor where the machine lacks a part', () => {
    assert.equal(seen({ client: NODE, isOwn: true }), 'the client is this node');
    assert.equal(seen({ client: ENDPOINT.address }), 'the client is the endpoint itself');
    const lacking = 'this machine cannot keep the addresses of IPv4 clients; check says what it lacks';
    assert.equal(seen({}, { facts: { ...FACTS, families: ['IPv6'] } }), lacking);
    assert.equal(seen({}, { facts: undefined }), lacking);
  });
});
