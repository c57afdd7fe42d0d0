import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { samePortal } from '../../src/capture/portal.ts';
import { namedEndpoint } from '../../src/model/endpoint.ts';
import { address, ENDPOINT } from '../support/model.ts';
import { lines, nodeFacts, type PortalFields, portal, renderPortals } from './fixtures.ts';

const NODE = nodeFacts({ clusterCidrs: ['10.244.0.0/16'] });
const FIELDS: PortalFields = {
  name: 'a/a',
  clusterIPs: ['10.96.0.1'],
  externalIPs: ['203.0.113.1'],
  loadBalancerIPs: ['203.0.113.2'],
  loadBalancerSourceRanges: ['192.0.2.0/24'],
  nodePort: 30_080,
  localSetPort: 40_002,
  local: { endpoints: [ENDPOINT], internal: false, external: true },
};
const MORE = [ENDPOINT, namedEndpoint(address('10.244.1.12'), 8080)];
const { local = { endpoints: [], internal: false, external: false } } = FIELDS;

describe('two portals are the same exactly when their rules are', () => {
  const variants: readonly [what: string, fields: Partial<PortalFields>][] = [
    ['nothing', {}],
    ['other endpoints', { endpoints: MORE }],
    ['other local endpoints', { local: { ...local, endpoints: MORE } }],
    ['no endpoints', { endpoints: [] }],
    ['endpoints elsewhere only', { endpoints: [], onlyElsewhere: true }],
    ['no local endpoints', { local: { ...local, endpoints: [] } }],
    ['local endpoints elsewhere only', { local: { ...local, endpoints: [], onlyElsewhere: true } }],
    ['how long clients wait', { waitMs: 1_000 }],
    ['no endpoints, and clients who wait', { endpoints: [], waitMs: 1_000 }],
    [
      'no local endpoints, and clients who wait',
      { local: { ...local, endpoints: [], onlyElsewhere: true }, waitMs: 1 },
    ],
    ['internal traffic too', { local: { ...local, internal: true } }],
    ['not external traffic', { local: { ...local, external: false } }],
    ['another protocol', { protocol: 'UDP' }],
    ['another port', { port: 81 }],
    ['an endpoint with the number of the node port', { namedEndpoints: ['192.168.50.10'] }],
    ['a closed endpoint with that number', { namedEndpoints: ['192.168.50.10'], closedEndpoints: ['192.168.50.10'] }],
    ['another node port', { nodePort: 30_081 }],
    ['another local port', { localPort: 40_009 }],
    ['another port of the local set', { localSetPort: 40_009 }],
    ['another cluster IP', { clusterIPs: ['10.96.0.2'] }],
    ['another external IP', { externalIPs: ['203.0.113.9'] }],
    ['another load balancer IP', { loadBalancerIPs: ['203.0.113.9'] }],
    ['other source ranges', { loadBalancerSourceRanges: ['192.0.2.0/25'] }],
    ['no source range that could be read', { loadBalancerSourceRanges: [] }],
  ];
  const rulesOf = (fields: PortalFields) => lines(renderPortals([portal(fields)], NODE).rules);

  for (const [what, fields] of variants) {
    test(`what differs: ${what}`, () => {
      const changed = { ...FIELDS, ...fields };
      const isSame = samePortal(portal(FIELDS), portal(changed));
      assert.equal(isSame, JSON.stringify(rulesOf(changed)) === JSON.stringify(rulesOf(FIELDS)));
      assert.equal(samePortal(portal(changed), portal(FIELDS)), isSame);
    });
  }

  for (const field of ['local', 'localSetPort', 'loadBalancerSourceRanges'] as const) {
    test(`what differs: no ${field}`, () => {
      const { [field]: _, ...without } = FIELDS;
      assert.equal(samePortal(portal(FIELDS), portal(without)), false);
      assert.equal(samePortal(portal(without), portal(FIELDS)), false);
      assert.notDeepEqual(rulesOf(without), rulesOf(FIELDS));
    });
  }
});
