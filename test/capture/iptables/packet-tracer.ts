import assert from 'node:assert/strict';
import { BlockList } from 'node:net';
import { JUMPS } from '../../../src/capture/iptables/chains.ts';
import type { Table } from '../../../src/capture/iptables/iptables.ts';
import type { Rule } from '../../../src/capture/iptables/rule.ts';
import type { ProxiedProtocol } from '../../../src/model/service-port.ts';

export interface Packet {
  /** A pod's packets come in by a port of a bridge; the host's own are not routed in, but made here. */
  readonly from: 'pod' | 'host' | 'outside';
  readonly protocol: ProxiedProtocol;
  readonly address: string;
  readonly port: number;
  /** An address outside, unless told. */
  readonly source?: string;
  /** In filter: NAT has sent it here. */
  readonly isFromNat?: true;
}

/** Where NAT sends a packet. */
export type Destination = 'untouched' | { readonly address: string; readonly port: number };

/**
 * Walks a packet through our chains as the kernel would. Throws for a rule that it does not fully understand, so that
 * no new kind of rule is passed over in silence.
 */
export class PacketTracer {
  /** How many rules the last packet was compared with, jumps and those of built-in chains included. */
  compared = 0;
  readonly #chains: ReadonlyMap<string, readonly Rule[]>;
  readonly #localAddresses: ReadonlySet<string>;

  constructor(rules: readonly Rule[], localAddresses: readonly string[]) {
    this.#chains = Map.groupBy(rules, (rule) => `${rule.table} ${rule.chain}`);
    this.#localAddresses = new Set(localAddresses);
  }

  nat(packet: Packet): Destination {
    this.compared = 0;
    const target = this.#walk('nat', packet.from === 'host' ? 'OUTPUT' : 'PREROUTING', packet);
    if (target === undefined) return 'untouched';
    const [, address = '', port] = /^DNAT --to-destination (\S*):(\d+)$/.exec(target) ?? [];
    assert.ok(port !== undefined, `the tracer does not know ${target}`);
    return { address: address === '' ? packet.address : address.replace(/[[\]]/g, ''), port: Number(port) };
  }

  /** What rules of ours do with it, before anybody else's can drop it. */
  input(packet: Packet): string | undefined {
    this.compared = 0;
    return this.#walk('filter', 'INPUT', packet);
  }

  /** The target, with its options, of the first rule that decides. */
  #walk(table: Table, chain: string, packet: Packet): string | undefined {
    const jumps = JUMPS.filter((jump) => jump.table === table && jump.from === chain);
    const inPlace = [...jumps].sort((a, b) => Number(a.place === 'last') - Number(b.place === 'last'));
    for (const { spec } of [...inPlace, ...(this.#chains.get(`${table} ${chain}`) ?? [])]) {
      this.compared++;
      const target = this.#targetFor(spec, packet);
      if (target === undefined) continue;
      if (target === 'RETURN') return undefined;
      const verdict = target.startsWith('KUBE-') ? this.#walk(table, target, packet) : target;
      if (verdict !== undefined) return verdict;
    }
    return undefined;
  }

  #targetFor(spec: string, packet: Packet): string | undefined {
    const [matches = '', target] = spec.split(/ ?-j /);
    assert.ok(target !== undefined, `a rule without a target: ${spec}`);
    const words = matches.replace(/--comment "[^"]*"/, '').match(/(?:! )?-\S+(?: [^-! ]\S*)*/g) ?? [];
    return words.every((word) => this.#matches(word, packet)) ? target : undefined;
  }

  #matches(word: string, packet: Packet): boolean {
    const [option = '', value = ''] = word.startsWith('! ') ? [word] : word.split(' ');
    switch (option) {
      case '-m':
        return true;
      case '-p':
        return value === packet.protocol.toLowerCase();
      case '-s':
        return contains(value, packet.source ?? (packet.address.includes(':') ? '2001:db8:f::1' : '198.51.100.1'));
      case '-d':
        return contains(value, packet.address);
      case '-i':
        return value === { pod: 'cbr0', outside: 'eth0', host: '' }[packet.from];
      case '--dport':
        return isWithin(value, packet.port);
      case '--dst-type':
        assert.equal(value, 'LOCAL');
        return this.#localAddresses.has(packet.address);
      case '! --ctstate NEW':
        return false;
      case '! --ctstate DNAT':
        return packet.isFromNat !== true;
      case '--ctstate':
        assert.ok(value === 'NEW' || value === 'DNAT');
        return value === 'NEW' || packet.isFromNat === true;
      default:
        throw new Error(`the tracer does not know ${word}`);
    }
  }
}

/** "80", "0:255" */
function isWithin(ports: string, port: number): boolean {
  const [first, last = first] = ports.split(':').map(Number);
  return first !== undefined && last !== undefined && first <= port && port <= last;
}

function contains(network: string, address: string): boolean {
  const [base = '', prefix] = network.split('/');
  const family = (text: string) => (text.includes(':') ? 'ipv6' : 'ipv4');
  if (family(base) !== family(address)) return false;
  const list = new BlockList();
  list.addSubnet(base, Number(prefix), family(base));
  return list.check(address, family(address));
}
