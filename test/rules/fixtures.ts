import { type Address, parseAddress } from '../../src/model/address.ts';
import { type Cidr, parseCidr } from '../../src/model/cidr.ts';
import type { ServicePortName } from '../../src/model/service.ts';
import type { ServicePort } from '../../src/model/service-port.ts';
import type { Portal } from '../../src/rules/claims.ts';
import type { Rule } from '../../src/rules/rule.ts';
import type { NodeFacts } from '../../src/rules/steering.ts';

export function address(text: string): Address {
  const parsed = parseAddress(text);
  if (parsed === undefined) throw new Error(`${text} is not an address`);
  return parsed;
}

export type PortalFields = Partial<Pick<ServicePort, 'protocol' | 'port' | 'nodePort'>> & {
  readonly name: string;
  readonly clusterIPs?: readonly string[];
  readonly externalIPs?: readonly string[];
  readonly loadBalancerIPs?: readonly string[];
  readonly localPort?: number;
};

/** A portal that answers nowhere but where the fields say; port 80/TCP, local port 40001. */
export function portal(fields: PortalFields): Portal {
  const { name, clusterIPs = [], externalIPs = [], loadBalancerIPs = [], localPort = 40001, ...rest } = fields;
  return {
    localPort,
    servicePort: {
      name: name as ServicePortName,
      protocol: 'TCP',
      port: 80,
      nodePort: 0,
      affinity: { type: 'None' },
      endpoints: [],
      ...rest,
      clusterIPs: clusterIPs.map(address),
      externalIPs: externalIPs.map(address),
      loadBalancerIPs: loadBalancerIPs.map(address),
    },
  };
}

type NodeChanges = Partial<Omit<NodeFacts, 'nodePortCidrs'>> & { readonly nodePortCidrs?: readonly string[] };

/** The node of the golden files; on the wildcard, NodePorts on every address. */
export function nodeFacts({ nodePortCidrs = [], ...changes }: NodeChanges = {}): NodeFacts {
  return {
    family: 'IPv4',
    bindAddress: '0.0.0.0',
    hostAddress: address('192.168.50.10'),
    nodePortCidrs: nodePortCidrs.map(cidr),
    ...changes,
  };
}

export function cidr(text: string): Cidr {
  const parsed = parseCidr(text);
  if (parsed === undefined) throw new Error(`${text} is not a CIDR`);
  return parsed;
}

export const IPV6_NODE = nodeFacts({ family: 'IPv6', bindAddress: '::', hostAddress: address('fd00:50::10') });

export function rule(spec: string, fields: Partial<Rule> = {}): Rule {
  return { table: 'nat', chain: 'KUBE-PORTALS-CONTAINER', spec, owner: 'default/web', ...fields };
}

export function lines(rules: readonly Rule[]): string[] {
  return rules.map(({ table, chain, spec }) => `${table}: -A ${chain} ${spec}`);
}
