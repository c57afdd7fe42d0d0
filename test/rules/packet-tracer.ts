import assert from 'node:assert/strict';
import { BlockList } from 'node:net';
import type { Table } from '../../src/contracts/iptables.ts';
import type { ProxiedProtocol } from '../../src/model/service-port.ts';
import { JUMPS } from '../../src/rules/chains.ts';
import type { Rule } from '../../src/rules/rule.ts';

export interface Packet {
  /** A pod's packets come in by a port of a bridge; the host's own are not routed in, but made here. */
  readonly from: 'pod' | 'host' | 'outside';
  readonly protocol: ProxiedProtocol;
  readonly address: string;
  readonly port: number;
}

/** Where NAT sends a packet. A redirected one goes to the address of the interface that it came in by. */
export type Destination = 'untouched' | { readonly address: string | 'this node'; readonly port: number };

/**
 * Walks a packet through our chains as the kernel would. Throws for a rule that it does not fully understand, so that
 * no new kind of rule is passed over in silence.
 */
export class PacketTracer {
  readonly #rules: readonly Rule[];
  readonly #localAddresses: ReadonlySet<string>;

  constructor(rules: readonly Rule[], localAddresses: readonly string[]) {
    this.#rules = rules;
    this.#localAddresses = new Set(localAddresses);
  }

  nat(packet: Packet): Destination {
    const target = this.#walk('nat', packet.from === 'host' ? 'OUTPUT' : 'PREROUTING', packet);
    const [, redirect, dnat] = /^(?:REDIRECT --to-ports (\d+)|DNAT --to-destination (\S+))$/.exec(target ?? '') ?? [];
    if (redirect !== undefined) {
      // In OUTPUT, the kernel would send it to loopback.
      return { address: packet.from === 'host' ? 'loopback' : 'this node', port: Number(redirect) };
    }
    if (dnat === undefined) return 'untouched';
    const colon = dnat.lastIndexOf(':');
    return { address: dnat.slice(0, colon).replace(/[[\]]/g, ''), port: Number(dnat.slice(colon + 1)) };
  }

  /** Whether a rule of ours lets it in, before anybody else's can drop it. */
  acceptsInput(packet: Packet): boolean {
    return this.#walk('filter', 'INPUT', packet) === 'ACCEPT';
  }

  /** The target, with its options, of the first rule that decides. */
  #walk(table: Table, chain: string, packet: Packet): string | undefined {
    const jumps = JUMPS.filter((jump) => jump.table === table && jump.from === chain);
    const inPlace = [...jumps].sort((a, b) => Number(a.place === 'last') - Number(b.place === 'last'));
    const own = this.#rules.filter((rule) => rule.table === table && rule.chain === chain);
    for (const { spec } of [...inPlace, ...own]) {
      const target = this.#targetFor(spec, packet);
      if (target === undefined) continue;
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
      case '-d':
        return contains(value, packet.address);
      case '--dport':
        return Number(value) === packet.port;
      case '! --physdev-is-in':
        return packet.from !== 'pod';
      case '--dst-type':
        assert.equal(value, 'LOCAL');
        return this.#localAddresses.has(packet.address);
      case '--state':
        assert.equal(value, 'NEW');
        return true;
      default:
        throw new Error(`the tracer does not know ${word}`);
    }
  }
}

function contains(network: string, address: string): boolean {
  const [base = '', prefix] = network.split('/');
  const family = (text: string) => (text.includes(':') ? 'ipv6' : 'ipv4');
  if (family(base) !== family(address)) return false;
  const list = new BlockList();
  list.addSubnet(base, Number(prefix), family(base));
  return list.check(address, family(address));
}
