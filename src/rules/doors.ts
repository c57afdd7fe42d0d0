import type { IpFamily } from '../model/address.ts';
import type { Table } from '../model/iptables.ts';
import type { Chain } from './chain-layout.ts';
import { DOORS, LET_IN } from './chains.ts';
import type { Rule } from './rule.ts';

/*
 * Ports to which NAT sends what no listener is to get (docs/adr/0010). Nothing listens there, so without the rules in
 * filter both refuse: no local port may be one of them.
 */
export const REFUSE = 1;
export const DROP = 9;

/** Behind the doors, where only new packets come. */
const LET_IN_JUMP = `-m conntrack ! --ctstate DNAT -j ${LET_IN}`;

/** Chains that are the same whatever Services there are. */
export function fixedChains(table: Table, family: IpFamily): readonly Chain[] {
  return table === 'filter' ? [{ name: DOORS, rules: doorRules(family), jumps: [LET_IN_JUMP] }] : [];
}

/**
 * TCP that is refused is let in, for the node's own stack to reset it: where bridged packets pass iptables
 * (br_netfilter) a reset from here would not find back through NAT. UDP is rejected, so that connection tracking keeps
 * no entry that would go on refusing after endpoints have come.
 */
function doorRules(family: IpFamily): readonly Rule[] {
  const unreachable = family === 'IPv4' ? 'icmp-port-unreachable' : 'icmp6-port-unreachable';
  const door = (protocol: 'tcp' | 'udp', port: number, target: string): Rule => ({
    table: 'filter',
    chain: DOORS,
    spec: `-p ${protocol} -m ${protocol} --dport ${port} -m conntrack --ctstate DNAT -j ${target}`,
  });
  return [
    door('tcp', REFUSE, 'ACCEPT'),
    door('udp', REFUSE, `REJECT --reject-with ${unreachable}`),
    door('tcp', DROP, 'DROP'),
    door('udp', DROP, 'DROP'),
  ];
}
