import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { checkPermissions } from '../../src/check/permissions.ts';
import { checkClusterIpRanges, listServices } from '../../src/check/source.ts';
import { ApiError } from '../../src/kubernetes/api-error.ts';
import type { Address } from '../../src/model/address.ts';
import type { SourceEvent } from '../../src/model/source.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { address, cidr, endpointAddress } from '../support/model.ts';
import { linesOf, troubles } from './fake-machine.ts';

const refused = (status: number, message = 'no way') =>
  new ApiError('status', `HTTP ${status}: ${message}`, { status });

describe('permissions', () => {
  /** A server that fails at some paths, and denies some rights. */
  const check = async (errors: Readonly<Record<string, Error>>, denied: readonly string[] = []) => {
    const asked: string[] = [];
    const answer = (path: string, body: unknown) => {
      asked.push(path);
      const error = Object.entries(errors).find(([at]) => path.startsWith(at))?.[1];
      return error === undefined ? Promise.resolve(body) : Promise.reject(error);
    };
    const findings = await checkPermissions(
      {
        get: (path) => answer(path, {}),
        post: (path, body) => {
          const { verb, resource } = (body as { spec: { resourceAttributes: Record<string, string> } }).spec
            .resourceAttributes;
          return answer(path, { status: { allowed: !denied.includes(`${verb} ${resource}`) } });
        },
      },
      'node-1',
    );
    return { findings, asked };
  };
  const REVIEWS = '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews';
  const NODE = '/api/v1/nodes/node-1';

  test('that are enough are one line', async () => {
    assert.deepEqual(linesOf((await check({})).findings), [
      'ok: may list and watch Services and EndpointSlices, watch its Node node-1 and write events',
    ]);
  });

  test('that Services depend on are failures when they are missing, the others warnings', async () => {
    const { findings } = await check({}, ['watch endpointslices', 'create events', 'watch nodes']);
    const [fails, ...warns] = troubles(findings);
    assert.match(fails!, /^fail: .* may not watch endpointslices\.discovery\.k8s\.io → bind .* system:node-proxier/);
    assert.deepEqual(
      warns.map((line) => line.split(':').slice(0, 2).join(':')),
      ['warn: these credentials may not watch nodes', 'warn: these credentials may not create events'],
    );
  });

  test('of a Node with another name are reported', async () => {
    const [line] = troubles((await check({ [NODE]: refused(404) })).findings);
    assert.match(line!, /^warn: the cluster does not have the Node node-1, .*--hostname-override/);
    assert.match(troubles((await check({ [NODE]: refused(403) })).findings)[0]!, /^warn: .* → bind the ClusterRole/);
  });

  test('are not requested any more after the server has failed', async () => {
    for (const [error, says] of [
      [new ApiError('unreachable', 'no answer within 5 s'), /^fail: .*: no answer within 5 s → .* is healthy$/],
      [refused(500), /^warn: .*: HTTP 500: no way → .* is healthy$/],
      [refused(404), /^warn: cannot ask for the permissions: HTTP 404/],
    ] as const) {
      const { findings, asked } = await check({ [REVIEWS]: error });
      assert.match(troubles(findings)[0]!, says);
      assert.deepEqual(asked, [REVIEWS]);
    }
    for (const nothing of [null, [], 1, { status: null }, { status: { allowed: 'x' } }]) {
      const findings = await checkPermissions({ get: async () => {}, post: async () => nothing }, 'node-1');
      assert.match(troubles(findings)[0]!, /^fail: .* the answer is not a SelfSubjectAccessReview/);
    }
  });
});

test('a range of cluster IPs in which something else lies is a warning', () => {
  const [range, inside, outside] = [cidr('10.96.0.0/16'), address('10.96.7.7'), address('10.97.0.1')];
  const endpoints = (at: Address): SourceEvent => {
    const addresses = [endpointAddress(at)];
    return { kind: 'Endpoints', key: 'default/a', value: { key: 'default/a', groups: [{ addresses, ports: [] }] } };
  };
  assert.deepEqual(linesOf(checkClusterIpRanges([range], [endpoints(outside), endpoints(inside)], [outside])), [
    'warn: the endpoint 10.96.7.7 lies in --service-cluster-ip-range → give a range that nothing else uses',
  ]);
  assert.deepEqual(linesOf(checkClusterIpRanges([range], [], [outside, inside])), [
    "warn: this machine's address 10.96.7.7 lies in --service-cluster-ip-range → give a range that nothing else uses",
  ]);
  assert.deepEqual(checkClusterIpRanges([], [endpoints(inside)], [inside]), []);
});

describe('the Services of a cluster', () => {
  const service = (index: number, spec: object = {}) => ({
    metadata: { name: `web-${index}`, namespace: 'shop' },
    spec: { type: 'NodePort', clusterIP: `10.96.0.${index}`, ports: [{ port: 80, nodePort: 30_080 }], ...spec },
  });

  /** A server whose pages have two items each, unless `misdeed` answers or throws. */
  function server(items: readonly unknown[], misdeed: (page: number) => unknown = () => undefined) {
    const asked: URLSearchParams[] = [];
    const clock = new ManualClock();
    const get = async (path: string): Promise<unknown> => {
      const query = new URLSearchParams(path.split('?')[1]);
      asked.push(query);
      const from = Number(query.get('continue') ?? 0);
      const next = from + 2 < items.length ? `${from + 2}` : '';
      const page = { metadata: { resourceVersion: '7', continue: next }, items: items.slice(from, from + 2) };
      return misdeed(asked.length) ?? page;
    };
    return { asked, clock, list: () => listServices({ get }, clock) };
  }

  test('are read in pages, without those of other proxies', async () => {
    const { asked, list } = server([1, 2, 3].map((index) => service(index)));
    const { services, findings } = await list();
    assert.deepEqual(linesOf(findings), ['ok: 3 Services with 3 ports']);
    assert.deepEqual(
      services.map(({ key, ports }) => [key, ports[0]?.nodePort]),
      [1, 2, 3].map((index) => [`shop/web-${index}`, 30_080]),
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

  test('that are invalid are warnings about a few of them', async () => {
    const bad = Array.from({ length: 7 }, (_, index) => service(index, { ports: 'x' }));
    const { services, findings } = await server([service(9), ...bad, 5]).list();
    assert.equal(services.length, 1);
    const lines = troubles(findings);
    assert.ok(lines.every((line) => line.startsWith('warn: ')));
    assert.match(lines[0]!, /"shop\/web-0" .*: spec\.ports is /);
    assert.equal(lines.length, 6);
    assert.match(lines[5]!, /^warn: 3 more faults in other Services/);
  });

  test('with a wrong annotation are warnings, and are served', async () => {
    const asking = (index: number, annotations: object) => {
      const { metadata, spec } = service(index);
      return { metadata: { ...metadata, annotations }, spec };
    };
    const { services, findings } = await server([
      asking(1, { 'kube-userspace-proxy/schedulr': 'lc' }),
      asking(2, { 'kube-userspace-proxy/wait-for-endpoints': '30' }),
      asking(3, { 'kube-userspace-proxy/udp-timeout': '1s' }),
    ]).list();
    assert.equal(services.length, 3);
    assert.deepEqual(troubles(findings), [
      'warn: A part of Service "shop/web-3" is left out: metadata.annotations[kube-userspace-proxy/udp-timeout] has no ' +
        'effect: the Service has no UDP port → correct the Service',
      'warn: Service "shop/web-1" goes without "kube-userspace-proxy/schedulr": a Service has no such annotation → did ' +
        'you mean kube-userspace-proxy/scheduler?',
      'warn: Service "shop/web-2" goes without kube-userspace-proxy/wait-for-endpoints: it is "30" → write "0", or a ' +
        'duration from 100ms to 10m0s, such as "30s"',
    ]);
  });

  test('are those read before a failure; without any, the check fails', async () => {
    const items = [1, 2, 3].map((index) => service(index));
    for (const [answer, says] of [
      [refused(403), /: HTTP 403: no way → /],
      [undefined, /2 Services|the answer is JSON, but not a list/],
      [{ items: {}, metadata: { resourceVersion: '1' } }, /not a list/],
      [{ items: [] }, /not a list/],
    ] as const) {
      const misdeed = (page: number) => {
        if (page !== 2) return undefined;
        if (answer instanceof Error) throw answer;
        return answer ?? { items: 1 };
      };
      const { services, findings } = await server(items, misdeed).list();
      assert.equal(services.length, 2);
      assert.match(troubles(findings)[0]!, /^warn: 2 Services with 2 ports, but not all of them: /);
      assert.match(troubles(findings)[0]!, says);
    }
    const none = server(items, () => {
      throw refused(403);
    });
    assert.match(troubles((await none.list()).findings)[0]!, /^fail: Services cannot be listed: HTTP 403/);
  });

  test('are limited in number and time', async () => {
    const page = { metadata: { resourceVersion: '1', continue: 'x' }, items: [service(1)] };
    const endless = server([], () => page);
    assert.match(troubles((await endless.list()).findings)[0]!, /there are more than 100000/);
    assert.equal(endless.asked.length, 200);
    const slow = server(
      Array.from({ length: 10 }, (_, index) => service(index)),
      () => void slow.clock.advance(2_000),
    );
    assert.match(troubles((await slow.list()).findings)[0]!, /^warn: 6 Services .*: it takes longer than 5 s → /);
  });
});
