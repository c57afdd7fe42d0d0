import { readFileSync } from 'node:fs';
import { parseDump } from '../../../src/capture/iptables/dump.ts';
import type { Portal } from '../../../src/model/capture.ts';
import { type PortalFields, portal } from '../fixtures.ts';

export const GOLDEN_BINDS = ['0.0.0.0', '192.168.50.10'] as const;
export type GoldenBind = (typeof GOLDEN_BINDS)[number];

/** `test/golden/services.yaml`, without the Services that get no rules. */
const SERVICE_PORTS: readonly PortalFields[] = [
  { name: 'default/web:http', clusterIPs: ['10.96.0.100'], externalIPs: ['192.168.50.77'], nodePort: 30080 },
  {
    name: 'default/web:dns',
    protocol: 'UDP',
    port: 53,
    clusterIPs: ['10.96.0.100'],
    externalIPs: ['192.168.50.77'],
    nodePort: 30053,
  },
  { name: 'shop/sticky', clusterIPs: ['10.96.0.101'] },
  {
    name: 'shop/balanced:https',
    port: 443,
    clusterIPs: ['10.96.0.102'],
    loadBalancerIPs: ['203.0.113.10'],
    nodePort: 30443,
  },
  { name: 'shop/empty', clusterIPs: ['10.96.0.104'] },
];

/** Table, chain and rules; rules of a chain sorted, except where the order is part of the behaviour. */
export type Comparable = Readonly<Record<string, readonly string[]>>;

export interface Golden {
  /** With the local ports that the golden file shows, so that rules can be compared to the letter. */
  readonly portals: readonly Portal[];
  /** What kube-proxy wrote, and what this program adds to it. */
  readonly rules: Comparable;
}

/**
 * Lines of a real kube-proxy as this program writes them, which differs on purpose (docs/adr/0016): never REDIRECT,
 * external IPs without conditions, and in filter one rule for every local port.
 */
export function adapted(lines: readonly string[]): readonly string[] {
  const changed = lines
    .filter((line) => !/^-A KUBE-NODEPORT-NON-LOCAL /.test(line))
    .map((line) =>
      line
        .replace(/^(-A KUBE-PORTALS-CONTAINER .*)-j REDIRECT --to-ports /, '$1-j DNAT --to-destination 192.168.50.10:')
        .replace(/^(-A KUBE-NODEPORT-CONTAINER .*)-j REDIRECT --to-ports /, '$1-j DNAT --to-destination :')
        .replace(/-m (?:physdev ! --physdev-is-in|addrtype --dst-type LOCAL) (?=-j DNAT)/, ''),
    );
  // Two conditions of one external IP make one rule.
  return changed.filter((line, index) => !/ -j DNAT /.test(line) || changed.indexOf(line) === index);
}

/** What `KUBE-NODEPORT-NON-LOCAL` begins with. */
export const NEW_FROM_NAT: readonly string[] = [
  '-m conntrack ! --ctstate NEW -j RETURN',
  '-m conntrack ! --ctstate DNAT -j RETURN',
];

/** What a real kube-proxy wrote. Its n-th proxy port becomes 40000 + n; every Service has endpoints here. */
export function readGolden(bind: GoldenBind): Golden {
  const file = new URL(`../../golden/kube-proxy-userspace-bind-${bind}.rules`, import.meta.url);
  const lines = readFileSync(file, 'utf8')
    .replace(/<proxy port (\d+)>/g, (_, n: string) => String(40_000 + Number(n)))
    .split('\n')
    // The API server made this Service; there is none here.
    .filter((line) => !line.includes('"default/kubernetes:https"'));
  const text = adapted(lines).join('\n');
  const portals = SERVICE_PORTS.map((fields) => portal({ ...fields, localPort: localPortOf(fields.name, text) }));
  const rules = comparable(text);
  const door = `DNAT --to-destination ${bind === '0.0.0.0' ? '' : bind}:1`;
  const at = bind === '0.0.0.0' ? '' : `-d ${bind}/32 `;
  const match = ({ servicePort, localPort }: Portal, comment: string) => {
    const proto = servicePort.protocol.toLowerCase();
    return `-p ${proto} -m comment --comment "${servicePort.name}${comment}" -m ${proto} --dport ${localPort}`;
  };
  const closed = portals.map((each) => `${at}${match(each, ' proxy port')} -j ${door}`);
  const letIn = portals.map((each) => `${match(each, '')} -j ACCEPT`);
  const added: Comparable = {
    'filter INPUT': [DOORS_JUMP, ...(rules['filter INPUT'] ?? [])],
    'filter KUBE-DOORS': DOORS.toSorted(),
    'filter KUBE-LET-IN': [],
    'filter KUBE-NODEPORT-NON-LOCAL': [...NEW_FROM_NAT, ...letIn].sort(),
    'nat KUBE-LOCAL-PORTS': closed.sort(),
    'nat KUBE-NODEPORT-CONTAINER': [...(rules['nat KUBE-NODEPORT-CONTAINER'] ?? []), '-j KUBE-LOCAL-PORTS'].sort(),
  };
  return { portals, rules: sortedByChain({ ...rules, ...added }) };
}

/** What is in the filter table beside kube-proxy's rules, whatever Services there are (docs/adr/0010). */
export const DOORS_JUMP =
  '-m conntrack --ctstate NEW -m comment --comment "refuse or drop what no Service carries" -j KUBE-DOORS';
export const DOORS: readonly string[] = [
  '-p tcp -m tcp --dport 1 -m conntrack --ctstate DNAT -j ACCEPT',
  '-p udp -m udp --dport 1 -m conntrack --ctstate DNAT -j REJECT --reject-with icmp-port-unreachable',
  '-p tcp -m tcp --dport 9 -m conntrack --ctstate DNAT -j DROP',
  '-p udp -m udp --dport 9 -m conntrack --ctstate DNAT -j DROP',
  '-m conntrack ! --ctstate DNAT -j KUBE-LET-IN',
];

export function comparable(dump: string): Comparable {
  const rules: Record<string, readonly string[]> = {};
  for (const [table, chains] of parseDump(dump)) {
    for (const [chain, specs] of chains) {
      rules[`${table} ${chain}`] = chain.startsWith('KUBE-') ? specs.toSorted() : specs;
    }
  }
  return sortedByChain(rules);
}

function sortedByChain(rules: Comparable): Comparable {
  return Object.fromEntries(Object.entries(rules).sort(([a], [b]) => (a < b ? -1 : 1)));
}

function localPortOf(name: string, golden: string): number {
  const port = new RegExp(`--comment "${name}" .*(?:--to-ports |:)(\\d+)$`, 'm').exec(golden)?.[1];
  if (port === undefined) throw new Error(`The golden file has no rule for ${name}`);
  return Number(port);
}
