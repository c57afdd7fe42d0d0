import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type ClientAddressPolicy, type KeptAddresses, keptAddresses } from '../../src/model/client-address.ts';
import type { EndpointSetName, LocalEndpointSet, ServicePort } from '../../src/model/service-port.ts';
import { address, servicePort } from '../support/model.ts';

const PRESERVE: ClientAddressPolicy = { clientAddress: 'preserve', masqueradeAll: false };
const MASQUERADE_ALL: ClientAddressPolicy = { ...PRESERVE, masqueradeAll: true };
const NOBODY = undefined;

const NODE_PORT = { nodePort: 30_080 };

function localTo(part: Partial<Pick<LocalEndpointSet, 'internal' | 'external'>>) {
  return { local: { endpoints: [], internal: false, external: false, ...part } };
}

describe("clients' addresses", () => {
  const kept = (
    fields: Partial<ServicePort>,
    set: EndpointSetName,
    policy: ClientAddressPolicy,
  ): Omit<KeptAddresses, 'clusterIPs'> | undefined => {
    const { clusterIPs, ...rest } = keptAddresses(servicePort(fields), set, policy) ?? {};
    assert.deepEqual(clusterIPs, 'pods' in rest ? servicePort().clusterIPs : undefined);
    return 'pods' in rest ? (rest as Omit<KeptAddresses, 'clusterIPs'>) : undefined;
  };

  const SERVICES = [
    ['a cluster IP alone', {}, 'own', { pods: 'all', others: 'none' }, NOBODY],
    ['the same with the policy Local', {}, 'own', { pods: 'all', others: 'none' }, NOBODY],
    ['a NodePort', NODE_PORT, 'own', { pods: 'internal', others: 'none' }, NOBODY],
    ['an external IP', { externalIPs: [address('203.0.113.1')] }, 'own', { pods: 'internal', others: 'none' }, NOBODY],
    [
      'a load balancer IP',
      { loadBalancerIPs: [address('203.0.113.1')] },
      'own',
      { pods: 'internal', others: 'none' },
      NOBODY,
    ],
    [
      'a NodePort with the external policy Local, for the node and pods',
      { ...NODE_PORT, ...localTo({ external: true }) },
      'own',
      { pods: 'all', others: 'none' },
      { pods: 'external', others: 'none' },
    ],
    [
      'the same, from outside',
      { ...NODE_PORT, ...localTo({ external: true }) },
      'local',
      { pods: 'all', others: 'all' },
      { pods: 'all', others: 'all' },
    ],
    [
      'a NodePort whose cluster IP has the policy Local',
      { ...NODE_PORT, ...localTo({ internal: true }) },
      'own',
      NOBODY,
      NOBODY,
    ],
    [
      'that cluster IP',
      { ...NODE_PORT, ...localTo({ internal: true }) },
      'local',
      { pods: 'all', others: 'none' },
      NOBODY,
    ],
    [
      'a NodePort with both policies Local, for the node and pods',
      { ...NODE_PORT, ...localTo({ internal: true, external: true }) },
      'own',
      { pods: 'all', others: 'none' },
      { pods: 'all', others: 'none' },
    ],
    [
      'the same, from outside and at its cluster IP',
      { ...NODE_PORT, ...localTo({ internal: true, external: true }) },
      'local',
      { pods: 'all', others: 'external' },
      { pods: 'external', others: 'external' },
    ],
  ] as const;
  for (const [what, fields, set, preserved, masqueraded] of SERVICES) {
    test(`are kept as kube-proxy keeps them: ${what}`, () => {
      assert.deepEqual(kept(fields, set, PRESERVE), preserved);
      assert.deepEqual(kept(fields, set, MASQUERADE_ALL), masqueraded);
    });
  }

  test('are kept or not as the Service says, else as the node does', () => {
    const choice = (clientAddress: 'preserve' | 'node' | undefined, policy: ClientAddressPolicy) => {
      const options = clientAddress && { options: { clientAddress } };
      return kept({ ...options }, 'own', policy) !== undefined;
    };
    const NODE: ClientAddressPolicy = { ...PRESERVE, clientAddress: 'node' };
    assert.equal(choice(undefined, PRESERVE), true);
    assert.equal(choice(undefined, NODE), false);
    assert.equal(choice('node', PRESERVE), false);
    assert.equal(choice('preserve', NODE), true);
    assert.equal(choice('preserve', MASQUERADE_ALL), false);
  });
});
