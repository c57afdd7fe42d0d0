import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parseEndpoint } from '../../../src/cli/shared.ts';
import type { ServicePortName } from '../../../src/model/service.ts';
import type { ConnectionView, EndpointState, ListenerView, ServiceView } from '../../../src/model/view.ts';
import { endpointUsers } from '../../../src/operate/control/endpoint-users.ts';
import { counters, FakeView } from '../../fakes/fake-view.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';

const POD = '10.244.1.7:8080';
const OTHER = '10.244.1.8:8080';

/** Open connections and the state by endpoint; where the engine does not count, `undefined`. */
type Endpoints = Readonly<Record<string, readonly [active: number | undefined, state: EndpointState]>>;

function listener(set: ListenerView['set'], endpoints: Endpoints): ListenerView {
  const shown = Object.entries(endpoints).map(([name, [active, state]]) => {
    const counted = active === undefined ? {} : { counters: { ...counters(0), active } };
    return { endpoint: parseEndpoint(name), state, weight: state === 'active' ? 1 : 0, ...counted };
  });
  return { set, traffic: [], localPort: 1, endpoints: shown, endpointCount: { all: shown.length, active: 0 } };
}

/** The users of the pod on a node with these Services and these connections to it. */
async function usersOf(services: Readonly<Record<string, readonly ListenerView[]>>, connections: string[] = []) {
  const view = new FakeView();
  const [example] = view.services() as Iterable<ServiceView>;
  view.services = function* () {
    for (const [name, listeners] of Object.entries(services)) {
      yield { ...(example as ServiceView), name: name as ServicePortName, listeners };
    }
  };
  view.connections = async function* () {
    for (const name of connections) {
      // With one to another endpoint, and one that has no endpoint yet.
      const to = [{ endpoint: parseEndpoint(OTHER) }, { endpoint: parseEndpoint(POD) }, {}];
      yield to.map((each) => ({ name, ...each }) as ConnectionView);
    }
  };
  const { users, isListed } = await endpointUsers(parseEndpoint(POD), view, new ManualClock());
  return { counts: Object.fromEntries(users.map(({ name, connections }) => [name, connections])), users, isListed };
}

describe('the users of an endpoint', () => {
  test('are the Service ports that have it, with the connections of all their listeners', async () => {
    const { counts, isListed } = await usersOf({
      'default/web': [listener('own', { [POD]: [2, 'drained'] }), listener('local', { [POD]: [1, 'drained'] })],
      'shop/web': [listener('own', { [OTHER]: [4, 'active'], [POD]: [0, 'drained'] })],
      'shop/dns': [listener('own', { [OTHER]: [4, 'active'] })],
    });
    assert.deepEqual([counts, isListed], [{ 'default/web': 3, 'shop/web': 0 }, false]);
  });

  test('list the endpoint sets in which no other endpoint gets new connections and answers', async () => {
    const { users } = await usersOf({
      'default/one': [listener('own', { [POD]: [0, 'active'] })],
      'default/rest': [listener('own', { [POD]: [0, 'active'], [OTHER]: [0, 'draining'] })],
      'default/dead': [listener('own', { [POD]: [0, 'active'], [OTHER]: [0, 'ejected'] })],
      'default/gone': [listener('own', { [POD]: [0, 'draining'] })],
      'default/two': [
        listener('own', { [POD]: [0, 'active'], [OTHER]: [0, 'active'] }),
        listener('local', { [POD]: [0, 'active'] }),
      ],
    });
    assert.deepEqual(
      users.map(({ name, isActive, onlyOneFor }) => [name, isActive, onlyOneFor]),
      [
        ['default/one', true, ['own']],
        ['default/rest', true, ['own']],
        ['default/dead', true, ['own']],
        ['default/gone', false, []],
        ['default/two', true, ['local']],
      ],
    );
  });

  const drained = { 'default/web': [listener('own', { [POD]: [0, 'drained'], [OTHER]: [5, 'active'] })] };
  const listed: readonly (readonly [
    what: string,
    services: typeof drained | object,
    connections: string[],
    counts: object,
  ])[] = [
    ['its counters began anew', drained, ['default/web', 'default/web'], { 'default/web': 2 }],
    ['it has left the Service', {}, ['default/web', 'shop/web'], { 'default/web': 1, 'shop/web': 1 }],
    [
      'the engine does not count',
      { 'default/web': [listener('own', { [POD]: [undefined, 'drained'] })] },
      ['default/web'],
      { 'default/web': 1 },
    ],
    ['there are none', drained, [], { 'default/web': 0 }],
  ];
  for (const [what, services, connections, expected] of listed) {
    test(`are found among the connections when ${what}`, async () => {
      const { counts, isListed } = await usersOf(services as typeof drained, connections);
      assert.deepEqual([counts, isListed], [expected, true]);
    });
  }

  test('are not searched among the connections while the endpoint gets new ones', async () => {
    const services = { 'default/web': [listener('own', { [POD]: [0, 'active'] })] };
    assert.equal((await usersOf(services, ['default/web'])).isListed, false);
  });
});
