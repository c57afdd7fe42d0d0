import type { Endpoint } from '../../src/model/endpoint.ts';
import type { Table } from '../../src/model/iptables.ts';
import type { ServicePortName } from '../../src/model/service.ts';
import type { ServicePort } from '../../src/model/service-port.ts';
import { chainsOf, fixedChains } from '../../src/rules/chain-layout.ts';
import { ROOT_CHAINS } from '../../src/rules/chains.ts';
import { parseDump } from '../../src/rules/dump.ts';
import { planTable, textOf, type WantedChain } from '../../src/rules/plan.ts';
import type { Portal } from '../../src/rules/portal.ts';
import type { Rule } from '../../src/rules/rule.ts';
import { type PortalConflict, RuleSet, treesOf, type UnsafeRule } from '../../src/rules/rule-set.ts';
import type { NodeFacts } from '../../src/rules/service-rules.ts';
import { address, cidr, ENDPOINT, servicePort } from '../support/model.ts';

export type PortalFields = Partial<
  Pick<ServicePort, 'protocol' | 'port' | 'nodePort' | 'healthCheckNodePort' | 'onlyElsewhere' | 'local'>
> & {
  readonly namedEndpoints?: readonly string[];
  readonly closedEndpoints?: readonly string[];
  readonly name: string;
  readonly clusterIPs?: readonly string[];
  readonly externalIPs?: readonly string[];
  readonly loadBalancerIPs?: readonly string[];
  readonly loadBalancerSourceRanges?: readonly string[];
  readonly endpoints?: readonly Endpoint[];
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

type NodeChanges = Partial<Omit<NodeFacts, 'nodePortCidrs'>> & {
  readonly nodePortCidrs?: readonly string[];
  /** Blocks that pods are in. */
  readonly clusterCidrs?: readonly string[];
};

/** The node of the golden files: bound to the wildcard, NodePorts on every address, pods unknown. */
export function nodeFacts({ nodePortCidrs = [], clusterCidrs = [], ...changes }: NodeChanges = {}): NodeFacts {
  return {
    family: 'IPv4',
    bindAddress: '0.0.0.0',
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
  readonly conflicts: readonly PortalConflict[];
  readonly unsafe: readonly UnsafeRule[];
}

/** All rules of these portals. */
export function renderPortals(portals: Iterable<Portal>, node: NodeFacts): RenderedPortals {
  const book = new RuleSet(node, portals);
  return { rules: rulesOf(book, node), conflicts: book.conflicts(), unsafe: book.unsafe() };
}

export function rulesOf(book: RuleSet, node: NodeFacts): readonly Rule[] {
  return TABLES.flatMap((table) => {
    const trees = treesOf(book.trees(), table);
    const chains = [...fixedChains(table, node.family), ...chainsOf(trees, node)];
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
  const installed = parseDump(dump).get(table) ?? new Map();
  const plan = planTable(table, installed, chainsWith(table, rules));
  return plan && textOf(plan.lines);
}

export function rule(spec: string, fields: Partial<Rule> = {}): Rule {
  return { table: 'nat', chain: 'KUBE-PORTALS-CONTAINER', spec, owner: 'default/web', ...fields };
}

export function lines(rules: readonly Rule[]): string[] {
  return rules.map(({ table, chain, spec }) => `${table}: -A ${chain} ${spec}`);
}
