import type { Flavour } from '../../kernel/iptables/flavour.ts';
import type { IpFamily } from '../../model/address.ts';
import type { Table } from '../../model/iptables.ts';
import { isKubeProxys, isOurs } from '../../rules/chains.ts';
import { parseDump } from '../../rules/dump.ts';
import { counted } from './counted.ts';
import { type Finding, fail, ok, warn } from './finding.ts';
import type { HostProcess } from './host-process.ts';

export interface LeftoverFacts {
  /** Those that share the network of this one. */
  readonly processes: readonly HostProcess[];
  /** The proxy of this program that serves this node; `pid` is not known of one in another container. */
  readonly serving: { readonly pid: number | undefined } | undefined;
  /** Which flavour a run would write. */
  readonly flavour: Flavour | undefined;
  readonly dumps: readonly {
    readonly flavour: Flavour;
    readonly family: IpFamily;
    readonly table: Table;
    /** `undefined` when it could not be read. */
    readonly text: string | undefined;
  }[];
  /** The text of `/proc/net/ip_vs`; `undefined` where the kernel has no IPVS. */
  readonly ipvs: string | undefined;
  /** Names of the interfaces of this machine. */
  readonly interfaces: readonly string[];
  /** What `nft list tables` prints; empty where there is no such program. */
  readonly nftTables: string;
}

/** Another proxy on this node, and what one has left behind. */
export function checkLeftovers(facts: LeftoverFacts): readonly Finding[] {
  const findings = [...running(facts), ...unread(facts), ...rules(facts), ...ipvs(facts), ...nftables(facts)];
  return findings.length === 0 ? [ok('no other proxy runs here or has left anything')] : findings;
}

function running({ processes, serving }: LeftoverFacts): readonly Finding[] {
  const who = serving?.pid === undefined ? 'in another container' : `process ${serving.pid}`;
  const own = serving && ok(`a proxy of this program serves this node (${who}); another would not start beside it`);
  const others = processes
    .filter(({ name }) => name === 'kube-proxy')
    .map(({ pid }) =>
      fail(
        `kube-proxy runs on this node (process ${pid}): two proxies fight for the same packets`,
        'keep it off this node (nodeSelector of its DaemonSet, or stop its unit), then run --cleanup',
      ),
    );
  return own === undefined ? others : [own, ...others];
}

/** A family that the kernel lacks has no rules; where there are none of any, that is not known. */
function unread({ flavour, dumps }: LeftoverFacts): readonly Finding[] {
  const chosen = dumps.filter((dump) => dump.flavour === flavour);
  if (chosen.length === 0 || chosen.some(({ text }) => text !== undefined)) return [];
  return [
    warn(
      `the tables of iptables-${flavour} cannot be read, so what another proxy has left in them is not known`,
      'see the checks of privileges and families, then run this one again',
    ),
  ];
}

/** By flavour, so that a hundred chains are one line. */
function rules({ flavour, dumps }: LeftoverFacts): readonly Finding[] {
  const left = new Map<Flavour, { kubeProxys: number; ours: number }>();
  for (const { flavour: of, table, text } of dumps) {
    const count = left.get(of) ?? { kubeProxys: 0, ours: 0 };
    for (const chain of parseDump(text ?? '')
      .get(table)
      ?.keys() ?? []) {
      if (isKubeProxys(table, chain)) count.kubeProxys++;
      else if (isOurs(table, chain)) count.ours++;
    }
    left.set(of, count);
  }
  return [...left].flatMap(([of, { kubeProxys, ours }]) => {
    const findings: Finding[] = [];
    if (kubeProxys > 0) {
      findings.push(
        warn(
          `the tables of iptables-${of} have ${counted(kubeProxys, 'chain')} of kube-proxy, which may take packets of Services past this proxy, to endpoints of back then`,
          'kube-userspace-proxy --cleanup, before it starts',
        ),
      );
    }
    if (ours > 0) {
      findings.push(
        of === flavour
          ? ok(`the tables of iptables-${of} have ${counted(ours, 'chain')} of this proxy, which will be taken over`)
          : warn(
              `the tables of iptables-${of}, which would not be used, have ${counted(ours, 'chain')} of this proxy, which lead to ports where nobody listens`,
              'kube-userspace-proxy --cleanup, before it starts',
            ),
      );
    }
    return findings;
  });
}

function ipvs({ ipvs: table = '', interfaces }: LeftoverFacts): readonly Finding[] {
  const services = [...table.matchAll(/^(?:TCP|UDP|SCTP) /gm)].length;
  const hasInterface = interfaces.includes('kube-ipvs0');
  if (services === 0 && !hasInterface) return [];
  const what = [
    services > 0 && `${counted(services, 'virtual server')} of IPVS`,
    hasInterface && 'the interface kube-ipvs0 with the addresses of Services',
  ];
  return [
    warn(
      `kube-proxy in ipvs mode has left ${what.filter(Boolean).join(' and ')}`,
      'ipvsadm --clear; ip link delete kube-ipvs0 (--cleanup takes out the rules only)',
    ),
  ];
}

function nftables({ nftTables }: LeftoverFacts): readonly Finding[] {
  const tables = [...nftTables.matchAll(/^table (ip6?) kube-proxy$/gm)].map(([, family]) => `${family} kube-proxy`);
  if (tables.length === 0) return [];
  return [
    warn(
      `kube-proxy in nftables mode has left the ${tables.length === 1 ? 'table' : 'tables'} ${tables.join(' and ')}`,
      tables.map((table) => `nft delete table ${table}`).join('; '),
    ),
  ];
}
