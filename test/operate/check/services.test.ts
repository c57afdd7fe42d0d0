import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { ApiAnswer } from '../../../src/operate/check/api-connection.ts';
import { listServices } from '../../../src/operate/check/services.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { of, told } from './levels.ts';

const service = (index: number, spec: object = {}) => ({
  metadata: { name: `web-${index}`, namespace: 'shop' },
  spec: {
    type: 'NodePort',
    clusterIP: `10.96.${index >> 8}.${index & 255}`,
    ports: [{ port: 80, nodePort: 30_080 }],
    ...spec,
  },
});

/** A server whose pages have two items each, unless something else is said for one. */
function server(
  items: readonly unknown[],
  misdeed: (page: number) => Partial<ApiAnswer> | undefined = () => undefined,
) {
  const asked: URLSearchParams[] = [];
  const clock = new ManualClock();
  const ask = async (path: string): Promise<ApiAnswer> => {
    const query = new URLSearchParams(path.split('?')[1]);
    asked.push(query);
    const from = Number(query.get('continue') ?? 0);
    const next = from + 2 < items.length ? `${from + 2}` : '';
    const body = { metadata: { resourceVersion: '7', continue: next }, items: items.slice(from, from + 2) };
    return { status: 200, date: undefined, body, ...misdeed(asked.length) };
  };
  return { asked, clock, list: () => listServices({ ask, clock }) };
}

describe('the Services of a cluster', () => {
  test('come in pages, those that are others’ left out by the server', async () => {
    const { asked, list } = server([1, 2, 3].map((index) => service(index)));
    const { services, findings } = await list();
    assert.deepEqual(told(findings), ['ok: 3 Services with 3 ports']);
    assert.deepEqual(
      services.map(({ key, ports }) => [key, ports[0]?.nodePort]),
      [
        ['shop/web-1', 30_080],
        ['shop/web-2', 30_080],
        ['shop/web-3', 30_080],
      ],
    );
    assert.deepEqual(
      asked.map((query) => [query.get('limit'), query.get('continue')]),
      [
        ['500', null],
        ['500', '2'],
      ],
    );
    assert.match(asked[1]?.get('labelSelector') ?? '', /service-proxy-name/);
  });

  test('that are not valid are told, a few of them, and are no failure of this node', async () => {
    const bad = Array.from({ length: 7 }, (_, index) => service(index, { ports: 'x' }));
    const { services, findings } = await server([service(9), ...bad, 5]).list();
    assert.equal(services.length, 1);
    assert.deepEqual(of('fail', findings), []);
    const [first, ...others] = of('warn', findings);
    assert.match(
      first!,
      /^Service "shop\/web-0" is not valid; it is left out \(field: spec\.ports, err: is "x"; expected a list\)/,
    );
    assert.equal(others.length, 5);
    assert.match(others.at(-1)!, /^3 faults more in other Services/);
  });

  const HOSTILE: readonly (readonly [what: string, answer: Partial<ApiAnswer>, says: RegExp])[] = [
    [
      'a refusal',
      { status: 403, body: { message: 'no way' } },
      /^2 Services with 2 ports, and not all of them: no way → /,
    ],
    ['a status alone', { status: 500, body: undefined }, /not all of them: HTTP 500/],
    ['what is no JSON', { body: undefined }, /not all of them: the answer is JSON, but not a list/],
    ['what is no list', { body: { items: {}, metadata: { resourceVersion: '1' } } }, /not a list/],
    ['a list without a version', { body: { items: [] } }, /not a list/],
  ];
  for (const [what, answer, says] of HOSTILE) {
    test(`are those before ${what}`, async () => {
      const items = [1, 2, 3].map((index) => service(index));
      const { services, findings } = await server(items, (page) => (page === 2 ? answer : undefined)).list();
      assert.equal(services.length, 2);
      assert.match(of('warn', findings)[0]!, says);
      assert.equal(findings.length, 1);
    });
  }

  test('that do not come to an end are left at a hundred thousand', async () => {
    const endless = server([], () => ({ body: { metadata: { resourceVersion: '1', continue: 'x' }, items: [] } }));
    assert.match(of('warn', (await endless.list()).findings)[0]!, /there are more than 100000/);
    assert.equal(endless.asked.length, 200);
  });

  test('are asked for five seconds long', async () => {
    const items = Array.from({ length: 10 }, (_, index) => service(index));
    const slow = server(items, () => {
      slow.clock.advance(2_000);
      return undefined;
    });
    const { services, findings } = await slow.list();
    assert.equal(services.length, 6);
    assert.match(
      of('warn', findings)[0]!,
      /^6 Services with 6 ports, and not all of them: it takes longer than 5 s → /,
    );
  });

  test('are none where there are none', async () => {
    assert.deepEqual(told((await server([]).list()).findings), ['ok: 0 Services with 0 ports']);
  });
});
