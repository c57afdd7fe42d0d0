import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ClientWatch, type WatchedClients } from '../../src/app/clients.ts';
import type { Address, Cidr, IpFamily } from '../../src/model/address.ts';
import type { ClientFacts } from '../../src/model/client-address.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { address, cidr } from '../support/model.ts';

const HIDDEN = 'iptables does not see bridge cbr0; modprobe br_netfilter';

describe('what the data plane knows of clients', () => {
  function watch(options: Partial<Pick<WatchedClients, 'clientAddress'>> = {}) {
    const told: ClientFacts[] = [];
    const obstacles = new Map<IpFamily, string>();
    const machine = {
      podCidrs: undefined as readonly Cidr[] | undefined,
      routedApart: [] as readonly Cidr[],
      addresses: [address('10.0.0.1')] as readonly Address[],
      served: ['IPv4'] as readonly IpFamily[],
    };
    const log = new RecordingLog();
    const clients = new ClientWatch({
      dataPlane: { knowClients: (facts) => told.push(facts) },
      findObstacle: (family) => obstacles.get(family),
      findRoutedApart: (family) => (family === 'IPv4' ? machine.routedApart : []),
      families: { wanted: ['IPv4', 'IPv6'], served: () => machine.served },
      node: {
        get podCidrs() {
          return machine.podCidrs;
        },
      },
      clientAddress: 'preserve',
      log,
      localAddresses: () => [...machine.addresses],
      ...options,
    });
    const look = () => {
      clients.look();
      return told.splice(0);
    };
    const lines = (level: 'warn' | 'info') => log.of(level).map(({ message }) => message);
    return { look, obstacles, machine, lines, clients };
  }

  test('is told once, and again with each change', () => {
    const { look, machine, clients } = watch();
    const first: ClientFacts = { nodeAddresses: machine.addresses, families: ['IPv4', 'IPv6'] };
    assert.deepEqual([look(), look()], [[first], []]);
    machine.podCidrs = [cidr('10.244.0.0/16')];
    assert.deepEqual(look(), [{ ...first, podCidrs: machine.podCidrs }]);
    machine.addresses = [address('10.0.0.1'), address('10.0.0.2')];
    const last = { podCidrs: machine.podCidrs, nodeAddresses: machine.addresses, families: first.families };
    assert.deepEqual([look(), look()], [[last], []]);
    assert.deepEqual(clients.facts, last);
  });

  test('is told nothing when only link-local addresses of IPv6 change, as with each pod', () => {
    const { look, machine } = watch();
    assert.equal(look().length, 1);
    machine.addresses = ['10.0.0.1', 'fe80::1', 'febf::2'].map((text) => address(text));
    assert.deepEqual(look(), []);
  });

  test('has the clients that policy routing sends another way, which one line says', () => {
    const { look, machine, lines } = watch();
    machine.routedApart = [cidr('10.0.3.7/32')];
    assert.deepEqual(look()[0]?.routedApart, machine.routedApart);
    machine.routedApart = [cidr('10.0.3.7/32'), cidr('10.0.3.8/32')];
    assert.deepEqual(look()[0]?.routedApart, machine.routedApart);
    assert.equal(lines('warn').length, 1);
  });

  test('has no family that something is in the way of, which one line says, and another when it is over', () => {
    const { look, obstacles, lines } = watch();
    obstacles.set('IPv4', HIDDEN);
    assert.deepEqual(look()[0]?.families, ['IPv6']);
    obstacles.set('IPv4', 'iptables does not see bridges cbr0 and cbr1; modprobe br_netfilter');
    look();
    assert.deepEqual(lines('warn'), [
      "Endpoints see this node's address instead of the client's, for IPv4 clients: iptables does not see bridge cbr0; " +
        'modprobe br_netfilter',
    ]);
    obstacles.delete('IPv4');
    assert.deepEqual(look()[0]?.families, ['IPv4', 'IPv6']);
    look();
    assert.deepEqual(lines('info'), ['Endpoints see the addresses of IPv4 clients again']);
    obstacles.set('IPv4', HIDDEN);
    look();
    assert.equal(lines('warn').length, 2);
  });

  test('is not worth a warning for a family that is not served', () => {
    const { look, obstacles, machine, lines } = watch();
    obstacles.set('IPv6', HIDDEN);
    look();
    assert.deepEqual(lines('warn'), []);
    machine.served = ['IPv4', 'IPv6'];
    look();
    assert.equal(lines('warn').length, 1);
  });

  test('is not worth a warning where endpoints are to see the node', () => {
    const { look, obstacles, lines } = watch({ clientAddress: 'node' });
    obstacles.set('IPv4', HIDDEN);
    look();
    assert.deepEqual(lines('warn'), []);
  });
});
