import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { elementsOf, servedSetOf } from '../../../src/capture/nft/claim-elements.ts';
import { address, cidr, ENDPOINT } from '../../support/model.ts';
import { nodeFacts } from '../fixtures.ts';
import { claims, elementTexts } from './fixtures.ts';

const LOCAL = { endpoints: [ENDPOINT], internal: false, external: true };

describe('the elements of a Service port', () => {
  test('are one for each address, its NodePort and its local port', () => {
    const fields = { externalIPs: [address('192.0.2.1')], nodePort: 30_080 };
    assert.deepEqual(elementTexts(claims(fields)), [
      'portals 10.96.0.1 . tcp . 80 comment "shop/web" : 40001',
      'portals 192.0.2.1 . tcp . 80 comment "shop/web" : 40001',
      'nodeports tcp . 30080 comment "shop/web" : 40001',
      'local-ports tcp . 40001 comment "shop/web"',
    ]);
  });

  test('lead to a door without an endpoint', () => {
    assert.deepEqual(elementTexts(claims({ endpoints: [] })), [
      'portals 10.96.0.1 . tcp . 80 comment "shop/web" : 1',
      'local-ports tcp . 40001 comment "shop/web"',
    ]);
    assert.deepEqual(elementTexts(claims({ endpoints: [], onlyElsewhere: true })).slice(0, 1), [
      'portals 10.96.0.1 . tcp . 80 comment "shop/web" : 9',
    ]);
  });

  test('lead clients from outside to the local set where the policy is Local, without a chain', () => {
    assert.deepEqual(elementTexts(claims({ nodePort: 30_080, local: LOCAL })), [
      'portals 10.96.0.1 . tcp . 80 comment "shop/web" : 40001',
      'nodeports tcp . 30080 comment "shop/web" : 40001',
      'nodeports-local tcp . 30080 comment "shop/web local" : 40002',
      'nodeport-conditions tcp . 30080 comment "shop/web" : goto to-local',
      'local-ports tcp . 40001 comment "shop/web"',
      'local-ports tcp . 40002 comment "shop/web local"',
    ]);
  });

  test('drop what comes from outside where the policy is Local and no endpoint is', () => {
    const local = { ...LOCAL, endpoints: [], onlyElsewhere: true } as const;
    assert.deepEqual(elementTexts(claims({ nodePort: 30_080, local })).slice(1, 3), [
      'nodeports tcp . 30080 comment "shop/web" : 40001',
      'nodeport-conditions tcp . 30080 comment "shop/web" : goto to-drop',
    ]);
  });

  test('share one chain for all Services that tell pods from others', () => {
    const node = nodeFacts({ clusterCidrs: ['10.244.0.0/16'] });
    const [one, other] = [
      claims({ nodePort: 30_080, local: LOCAL }, node),
      claims({ name: 'a/b', nodePort: 30_081, local: LOCAL }, node, 41_000),
    ].map((some) => some.flatMap((claim) => elementsOf(claim).conditions));
    assert.equal(one?.length, 1);
    assert.deepEqual(one, other);
    assert.deepEqual(
      one?.[0]?.rules.map(({ source, to }) => [source?.network, to]),
      [
        ['10.244.0.0', 'to-portal'],
        [undefined, 'to-local'],
      ],
    );
  });

  test('let in who is in a source range, and drop all others', () => {
    const fields = {
      loadBalancerIPs: [address('203.0.113.1')],
      loadBalancerSourceRanges: [cidr('192.0.2.0/24')],
    };
    const balanced = claims(fields).find(({ kind }) => kind === 'load-balancer IP');
    assert.ok(balanced !== undefined);
    const { elements, conditions } = elementsOf(balanced);
    assert.deepEqual(
      elements.map(({ set, data }) => [set, data]),
      [
        ['portals', 40_001],
        ['conditions', conditions[0]?.chain],
        ['conditions-out', conditions[1]?.chain],
      ],
    );
    assert.deepEqual(
      conditions.map(({ rules }) => rules.map(({ source, to }) => [source?.network, to])),
      [
        [
          ['192.0.2.0', 'to-portal'],
          [undefined, 'to-drop'],
        ],
        [
          ['192.0.2.0', 'to-portal'],
          [undefined, 'to-drop'],
        ],
      ],
    );
  });

  test('drop everybody where no source range is left', () => {
    const fields = { loadBalancerIPs: [address('203.0.113.1')], loadBalancerSourceRanges: [] };
    assert.deepEqual(elementTexts(claims(fields)).slice(1, 2), [
      'portals 203.0.113.1 . tcp . 80 comment "shop/web" : 9',
    ]);
  });

  test('spare an endpoint with the number of the NodePort, and let it in unless it is closed', () => {
    const [open, closed] = [address('192.168.50.10'), address('192.168.50.11')];
    const fields = { nodePort: 30_080, namedEndpoints: [open, closed], closedEndpoints: [closed] };
    assert.deepEqual(elementTexts(claims(fields)).slice(2, 5), [
      'spared 192.168.50.10 . tcp . 30080 comment "shop/web"',
      'spared 192.168.50.11 . tcp . 30080 comment "shop/web"',
      'let-in 192.168.50.10 . tcp . 30080 comment "shop/web"',
    ]);
  });

  test('let health checks in', () => {
    assert.deepEqual(elementTexts(claims({ healthCheckNodePort: 32_000 })).slice(1, 2), [
      'health-checks tcp . 32000 comment "shop/web"',
    ]);
  });
});

test('a comment names a Service port and its set, and nothing else is taken for one', () => {
  assert.deepEqual(servedSetOf('shop/web:http'), { name: 'shop/web:http', set: 'own' });
  assert.deepEqual(servedSetOf('shop/web:http local'), { name: 'shop/web:http', set: 'local' });
  for (const comment of ['', 'shop', 'a/b/c', 'a/b  local', 'a/b remote', '"a/b"']) {
    assert.equal(servedSetOf(comment), undefined, comment);
  }
});
