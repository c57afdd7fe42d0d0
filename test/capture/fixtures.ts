import { ClaimBook, type HolderOf } from '../../src/capture/claim-book.ts';
import type { Claim } from '../../src/capture/claims.ts';
import { chainsOf, fixedChains } from '../../src/capture/iptables/chain-layout.ts';
import { ROOT_CHAINS } from '../../src/capture/iptables/chains.ts';
import { parseDump } from '../../src/capture/iptables/dump.ts';
import type { Table } from '../../src/capture/iptables/iptables.ts';
import {
  type Difference,
  difference,
  planCleanup,
  planTable,
  textOf,
  type WantedChain,
} from '../../src/capture/iptables/plan.ts';
import type { Rule } from '../../src/capture/iptables/rule.ts';
import { RuleBook, type UnsafeRule } from '../../src/capture/iptables/rule-trees.ts';
import type { Conflict, NodeFacts, Portal } from '../../src/model/capture.ts';
import type { NamedEndpoint } from '../../src/model/endpoint.ts';
import type { ServicePortName } from '../../src/model/service.ts';
import type { ServicePort } from '../../src/model/service-port.ts';
import { address, cidr, ENDPOINT, servicePort } from '../support/model.ts';

export type PortalFields = Partial<
  Pick<ServicePort, 'protocol' | 'port' | 'nodePort' | 'healthCheckNodePort' | 'onlyElsewhere' | 'waitMs' | 'local'>
> & {
  readonly namedEndpoints?: readonly string[];
  readonly closedEndpoints?: readonly string[];
  readonly name: string;
  readonly clusterIPs?: readonly string[];
  readonly externalIPs?: readonly string[];
  readonly loadBalancerIPs?: readonly string[];
  readonly loadBalancerSourceRanges?: readonly string[];
  readonly endpoints?: readonly NamedEndpoint[];
  readonly localPort?: number;
  readonly localSetPort?: number;
};

/** A portal with only the addresses of the fields; port 80/TCP, local port 40001, one endpoint. */
export function portal(fields: PortalFields): Portal {
  const { name, clusterIPs = [], externalIPs = [], loadBalancerIPs = [], loadBalancerSourceRanges: ranges } = fields;
  const {
    localPort = 40001,
    localSetPort,
    protocol = 'TCP',
    port = 80,
    nodePort = 0,
    local,
    onlyElsewhere,
    healthCheckNodePort,
    waitMs,
  } = fields;
  return {
    localPort,
    ...(localSetPort !== undefined && { localSetPort }),
    servicePort: servicePort({
      name: name as ServicePortName,
      protocol,
      port,
      nodePort,
      endpoints: fields.endpoints ?? [ENDPOINT],
      ...(onlyElsewhere && { onlyElsewhere }),
      ...(healthCheckNodePort !== undefined && { healthCheckNodePort }),
      ...(waitMs !== undefined && { waitMs }),
      ...(local && { local }),
      ...(fields.namedEndpoints && { namedEndpoints: fields.namedEndpoints.map(address) }),
      ...(fields.closedEndpoints && { closedEndpoints: fields.closedEndpoints.map(address) }),
      ...(ranges && { loadBalancerSourceRanges: ranges.map(cidr) }),
      clusterIPs: clusterIPs.map(address),
      externalIPs: externalIPs.map(address),
      loadBalancerIPs: loadBalancerIPs.map(address),
    }),
  };
}

type NodeChanges = Partial<Omit<NodeFacts, 'nodePortCidrs' | 'bindAddress'>> & {
  readonly bindAddress?: string;
  readonly nodePortCidrs?: readonly string[];
  /** Blocks that pods are in. */
  readonly clusterCidrs?: readonly string[];
};

/** The node of the golden files: bound to the wildcard, NodePorts on every address, pods unknown. */
export function nodeFacts({
  nodePortCidrs = [],
  clusterCidrs = [],
  bindAddress = '0.0.0.0',
  ...changes
}: NodeChanges = {}): NodeFacts {
  return {
    family: 'IPv4',
    bindAddress: address(bindAddress),
    hostAddress: address('192.168.50.10'),
    nodePortCidrs: nodePortCidrs.map(cidr),
    pods: clusterCidrs.map((each) => ({ source: cidr(each) })),
    ...changes,
  };
}

export const IPV6_NODE = nodeFacts({ family: 'IPv6', bindAddress: '::', hostAddress: address('fd00:50::10') });

export interface RenderedPortals {
  /** In the order in which they stand in their chains; jumps to buckets belong to nobody. */
  readonly rules: readonly Rule[];
  readonly conflicts: readonly Conflict[];
  readonly unsafe: readonly UnsafeRule[];
}

/** Claims, and their rules, as `FamilyCapture` and the back end of iptables keep them. */
export class Rules {
  readonly #rules: RuleBook;
  readonly #claims: ClaimBook;

  constructor(node: NodeFacts, portals: Iterable<Portal> = [], installed?: HolderOf) {
    this.#rules = new RuleBook(node);
    const onGranted = (before: Claim | undefined, after: Claim | undefined) => this.#rules.replace(before, after);
    this.#claims = new ClaimBook(node, onGranted, installed);
    for (const each of portals) this.set(each);
  }

  set = (of: Portal) => this.#claims.set(of);
  remove = (name: ServicePortName) => this.#claims.remove(name);
  settle = () => this.#claims.settle();
  holderOf = (what: string) => this.#claims.holderOf(what);
  conflicts = () => this.#claims.conflicts();
  conflictsOf = (name: ServicePortName) => this.#claims.conflictsOf(name);
  unsafe = () => this.#rules.unsafe();
  trees = (table: Table) => this.#rules.trees(table);
}

/** All rules of these portals. */
export function renderPortals(portals: Iterable<Portal>, node: NodeFacts): RenderedPortals {
  const book = new Rules(node, portals);
  return { rules: rulesOf(book, node), conflicts: book.conflicts(), unsafe: book.unsafe() };
}

export function rulesOf(book: Rules, { family }: NodeFacts): readonly Rule[] {
  return TABLES.flatMap((table) => {
    const chains = [...fixedChains(table, family), ...chainsOf(book.trees(table), { table, family })];
    return chains.flatMap(({ name: chain, rules, jumps }) => [
      ...rules.map((each) => ({ ...each, chain })),
      ...jumps.map((spec) => ({ table, chain, spec })),
    ]);
  });
}

/** The rules that belong to Service ports. */
export function owned(rules: readonly Rule[]): readonly Rule[] {
  return rules.filter(({ owner }) => owner !== undefined);
}

const TABLES: readonly Table[] = ['nat', 'filter'];

/** The chains of a table with these rules, and the chains that always exist. */
export function chainsWith(table: Table, rules: readonly Rule[]): readonly WantedChain[] {
  const always = [...fixedChains(table, 'IPv4').map(({ name }) => name), ...ROOT_CHAINS[table]];
  const specs = new Map<string, string[]>(always.map((chain) => [chain, []]));
  for (const each of rules) {
    if (each.table !== table) continue;
    const list = specs.get(each.chain);
    if (list === undefined) specs.set(each.chain, [each.spec]);
    else list.push(each.spec);
  }
  return [...specs].map(([name, list]) => ({ name, specs: list }));
}

/** The restore text that makes a table hold these rules, whatever it held before. */
export function planText(table: Table, dump: string, rules: readonly Rule[]): string | undefined {
  return planOf(table, dump, chainsWith(table, rules));
}

/** The same for these chains. */
export function planOf(table: Table, dump: string, wanted: readonly WantedChain[]): string | undefined {
  const installed = parseDump(dump).get(table) ?? new Map();
  const comparing = difference(table, installed, wanted);
  let step = comparing.next();
  while (!step.done) step = comparing.next();
  const lines = planTable(table, installed, step.value as Difference);
  return lines && textOf(lines);
}

/** The restore text that removes all of ours, and with `kubeProxys` what kube-proxy has left, from a table. */
export function cleanupText(table: Table, dump: string, kubeProxys = true): string | undefined {
  return planCleanup(table, parseDump(dump).get(table) ?? new Map(), { kubeProxys });
}

export function rule(spec: string, fields: Partial<Rule> = {}): Rule {
  return { table: 'nat', chain: 'KUBE-PORTALS-CONTAINER', spec, owner: 'default/web', ...fields };
}

export function lines(rules: readonly Rule[]): string[] {
  return rules.map(({ table, chain, spec }) => `${table}: -A ${chain} ${spec}`);
}
