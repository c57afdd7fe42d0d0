import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Routes } from '../../src/capture/claims.ts';
import { portOf } from '../../src/capture/portal.ts';
import { routesTo } from '../../src/capture/routes.ts';
import type { NodeFacts, Portal } from '../../src/model/capture.ts';
import { destinations } from '../../src/model/service-port.ts';
import { ENDPOINT } from '../support/model.ts';
import { nodeFacts, type PortalFields, portal } from './fixtures.ts';

const FACTS: NodeFacts = nodeFacts({ clusterCidrs: ['10.244.0.0/16'] });

/** "10.244.0.0/16→own 40001", "→refusal 9" */
function textOf({ container, host }: Routes) {
  const text = (routes: Routes['container']) =>
    routes.map(({ source, inInterface, target }) => {
      const from = source === undefined ? '' : `${source.network}/${source.prefixLength}`;
      return `${inInterface?.name ?? ''}${from}→${target.kind === 'listener' ? target.set : 'refusal'} ${portOf(target)}`;
    });
  return { container: text(container), host: text(host) };
}

/** By the kind of destination. */
function routes(fields: Omit<PortalFields, 'name'>, facts = FACTS) {
  return routesOf(fixture(fields), facts);
}

function fixture(fields: Omit<PortalFields, 'name'>): Portal {
  const addresses = { clusterIPs: ['10.96.0.1'], externalIPs: ['198.51.100.1'], loadBalancerIPs: ['203.0.113.10'] };
  return portal({ name: 'a/a', localSetPort: 40_002, ...addresses, ...fields });
}

function routesOf(of: Portal, facts = FACTS) {
  const [clusterIP, loadBalancerIP, external] = destinations(of.servicePort).map((each) =>
    textOf(routesTo(each, of, facts)),
  );
  assert.ok(clusterIP && loadBalancerIP && external);
  return { clusterIP, external, loadBalancerIP };
}

const same = (...list: readonly string[]) => ({ container: list, host: list });
const local = (fields: { internal: boolean; external: boolean }, endpoints = [ENDPOINT]) => ({ endpoints, ...fields });
const NONE = { endpoints: [] };
const ELSEWHERE = { endpoints: [], onlyElsewhere: true } as const;

describe('traffic of a Service port with two endpoint sets', () => {
  const OWN = same('→own 40001');
  const EXTERNAL = { container: ['10.244.0.0/16→own 40001', '→local 40002'], host: ['→own 40001'] };

  for (const [what, fields, clusterIP, external] of [
    ['internal', { local: local({ internal: true, external: false }) }, same('→local 40002'), OWN],
    ['external', { local: local({ internal: false, external: true }) }, OWN, EXTERNAL],
    ['both', { local: local({ internal: true, external: true }) }, same('→local 40002'), EXTERNAL],
    [
      'external, where no endpoint is here',
      { local: { ...ELSEWHERE, internal: false, external: true } },
      OWN,
      { container: ['10.244.0.0/16→own 40001', '→refusal 9'], host: ['→own 40001'] },
    ],
    [
      'external, where there is no endpoint at all',
      { ...NONE, local: { ...NONE, internal: false, external: true } },
      same('→refusal 1'),
      same('→refusal 1'),
    ],
    [
      'internal, where no endpoint is here',
      { local: { ...ELSEWHERE, internal: true, external: false } },
      same('→refusal 9'),
      OWN,
    ],
  ] as const) {
    test(`goes by policy: ${what}`, () => {
      assert.deepEqual(routes(fields), { clusterIP, external, loadBalancerIP: external });
    });
  }

  test('counts as traffic from outside where pods are unknown', () => {
    const facts = { ...FACTS, pods: [] };
    const { external } = routes({ local: local({ internal: false, external: true }) }, facts);
    assert.deepEqual(external, { container: ['→local 40002'], host: ['→own 40001'] });
  });

  test('of pods is recognised by its interface, within source ranges too', () => {
    const facts = { ...FACTS, pods: [{ inInterface: { name: 'cali+', isPrefix: false } }] };
    const fields = {
      local: local({ internal: false, external: true }),
      loadBalancerSourceRanges: ['192.0.2.0/24', '0.0.0.0/0'],
    };
    const { external, loadBalancerIP } = routes(fields, facts);
    assert.deepEqual(external.container, ['cali+→own 40001', '→local 40002']);
    assert.deepEqual(external.host, ['→own 40001']);
    assert.deepEqual(loadBalancerIP.container, ['cali+192.0.2.0/24→own 40001', 'cali+→own 40001', '→local 40002']);
  });

  test('is dropped while the second listener is not open yet', () => {
    const { localSetPort: _, ...rest } = fixture({ local: local({ internal: true, external: false }) });
    assert.deepEqual(routesOf(rest).clusterIP, same('→refusal 9'));
  });
});

describe('source ranges', () => {
  const ranged = (...loadBalancerSourceRanges: string[]) => ({ loadBalancerSourceRanges });

  test('apply to load balancer IPs only, each with a route', () => {
    const { clusterIP, external, loadBalancerIP } = routes(ranged('192.0.2.0/24', '198.51.100.7/32'));
    assert.deepEqual([clusterIP, external], [same('→own 40001'), same('→own 40001')]);
    assert.deepEqual(loadBalancerIP, same('192.0.2.0/24→own 40001', '198.51.100.7/32→own 40001', '→refusal 9'));
  });

  test('accept the node by its own address, and then also by the load balancer IP', () => {
    const { container, host } = routes(ranged('192.168.50.0/24')).loadBalancerIP;
    assert.deepEqual(container, ['192.168.50.0/24→own 40001', '→refusal 9']);
    assert.deepEqual(host, ['192.168.50.0/24→own 40001', '203.0.113.10/32→own 40001', '→refusal 9']);
  });

  for (const [what, ranges] of [
    ['none could be read', []],
    ['none is of the family', ['2001:db8::/32']],
  ] as const) {
    test(`accept nobody when ${what}`, () => {
      assert.deepEqual(routes(ranged(...ranges)).loadBalancerIP, same('→refusal 9'));
    });
  }

  test('that include everything are no limit', () => {
    assert.deepEqual(routes(ranged('0.0.0.0/0', '192.0.2.0/24')).loadBalancerIP, same('→own 40001'));
  });

  test('that are given twice make one route', () => {
    assert.equal(routes(ranged('192.0.2.0/24', '192.0.2.0/24')).loadBalancerIP.container.length, 2);
  });

  test('and pods: a client in both gets the own set, whichever range is smaller', () => {
    const { container } = routes({
      ...ranged('10.244.1.0/24', '10.0.0.0/8', '192.0.2.0/24'),
      local: local({ internal: false, external: true }),
    }).loadBalancerIP;
    assert.deepEqual(container, [
      '10.244.1.0/24→own 40001',
      '10.244.0.0/16→own 40001',
      '10.0.0.0/8→local 40002',
      '192.0.2.0/24→local 40002',
      '→refusal 9',
    ]);
  });

  test('apply to refused Services, too', () => {
    const { container } = routes({ ...NONE, ...ranged('192.0.2.0/24') }).loadBalancerIP;
    assert.deepEqual(container, ['192.0.2.0/24→refusal 1', '→refusal 9']);
  });
});
