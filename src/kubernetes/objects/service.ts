import type { Cidr } from '../../model/address.ts';
import { type Address, familyOf } from '../../model/address.ts';
import type { Service, ServicePortSpec, SessionAffinity, TrafficPolicy } from '../../model/service.ts';
import type { Field } from '../../util/untrusted.ts';
import { Skip, type Warnings } from './decoded.ts';
import { address, cidr, dnsLabel, keyOf, portName, portNumber, protocol, skipByLabel, uidOf } from './fields.ts';
import { decodeServiceOptions } from './service-options.ts';

const TYPES = ['ClusterIP', 'NodePort', 'LoadBalancer', 'ExternalName'] as const;
const IP_MODES = ['VIP', 'Proxy'] as const;
const TRAFFIC_POLICIES = ['Cluster', 'Local'] as const;
const DEFAULT_AFFINITY_SECONDS = 10_800;
const MAX_AFFINITY_SECONDS = 86_400;

/**
 * A `v1` Service. Skipped as upstream does (`pkg/proxy/util/utils.go` ShouldSkipService and the labels of its watch):
 * headless and ExternalName Services, and those of another proxy.
 */
export function decodeService(root: Field, warnings: Warnings): Service {
  const key = keyOf(root, dnsLabel);
  const spec = root.get('spec');
  const type = spec.get('type').isPresent ? spec.get('type').oneOf(TYPES) : 'ClusterIP';
  if (type === 'ExternalName') throw new Skip('its type is ExternalName');
  skipByLabel(root);
  const clusterIPs = decodeClusterIPs(spec);
  if (clusterIPs.length === 0) throw headless(spec);
  const internalTrafficPolicy = decodePolicy(spec.get('internalTrafficPolicy'));
  const externalTrafficPolicy = decodePolicy(spec.get('externalTrafficPolicy'));
  const loadBalancerSourceRanges = decodeSourceRanges(spec.get('loadBalancerSourceRanges'), warnings);
  const healthCheckNodePort = decodeNodePort(spec.get('healthCheckNodePort'));
  // As upstream (`pkg/api/v1/service/util.go` NeedsHealthCheck): for other Services the number is a leftover.
  const hasHealthCheck = type === 'LoadBalancer' && externalTrafficPolicy === 'Local' && healthCheckNodePort !== 0;
  const uid = uidOf(root);
  const ports = decodePorts(spec.get('ports'), { hasNodePorts: type !== 'ClusterIP' });
  const options = decodeServiceOptions(root, ports, warnings);
  return {
    key,
    ...(uid !== undefined && { uid }),
    clusterIPs,
    externalIPs: distinct(warnings.keepValid(spec.get('externalIPs').items(), address)),
    loadBalancerIPs: decodeIngress(root.get('status').get('loadBalancer').get('ingress'), warnings),
    ports,
    affinity: decodeAffinity(spec),
    ...(options !== undefined && { options }),
    ...(internalTrafficPolicy !== 'Cluster' && { internalTrafficPolicy }),
    ...(externalTrafficPolicy !== 'Cluster' && { externalTrafficPolicy }),
    ...(loadBalancerSourceRanges !== undefined && { loadBalancerSourceRanges }),
    ...(hasHealthCheck && { healthCheckNodePort }),
  };
}

/** Empty for a headless Service. */
function decodeClusterIPs(spec: Field): Address[] {
  const single = spec.get('clusterIP');
  const all = spec.get('clusterIPs').items();
  const fields = all.length > 0 ? all : [single];
  if (fields.every(isNoAddress)) return [];

  const addresses = fields.map(address);
  for (const [index, field] of fields.entries()) {
    const family = familyOf(addresses[index] as Address);
    if (addresses.findIndex((other) => familyOf(other) === family) !== index) {
      throw field.wrong(`expected at most one ${family} address`);
    }
  }
  // The API server keeps both fields equal; in a file that does not, either may be the intended one.
  if (single.isPresent && address(single) !== addresses[0]) {
    throw single.wrong(`expected the first of spec.clusterIPs, ${addresses[0]}`);
  }
  return addresses;
}

/** An API server assigns a missing address, so it writes none of these but `None`. */
function headless(spec: Field): Skip {
  const fields = [spec.get('clusterIP'), ...spec.get('clusterIPs').items()];
  if (fields.some(({ value }) => value === 'None')) return new Skip('it is headless');
  const problem = 'is missing, and only an API server assigns one; write a free address, or None';
  return new Skip('it is headless', { field: spec.get('clusterIP').path, problem });
}

function isNoAddress(field: Field): boolean {
  return !field.isPresent || field.value === '' || field.value === 'None';
}

function decodeIngress(ingress: Field, warnings: Warnings): Address[] {
  const points = warnings.keepValid(ingress.items(), (point) => ({
    ip: point.get('ip'),
    mode: point.get('ipMode').isPresent ? point.get('ipMode').oneOf(IP_MODES) : 'VIP',
  }));
  // A point without an address has a host name, and clients use the addresses of that. In mode Proxy the load balancer
  // adds to what it forwards, so connections must not bypass it (upstream `pkg/proxy/util/utils.go` IsVIPMode).
  const fields = points.filter(({ ip, mode }) => mode === 'VIP' && ip.isPresent && ip.value !== '').map(({ ip }) => ip);
  return distinct(warnings.keepValid(fields, address));
}

function decodePolicy(policy: Field): TrafficPolicy {
  return policy.isPresent && policy.value !== '' ? policy.oneOf(TRAFFIC_POLICIES) : 'Cluster';
}

/** `undefined` without ranges. Bad ranges are left out; if none is left, all clients are refused. */
function decodeSourceRanges(ranges: Field, warnings: Warnings): Cidr[] | undefined {
  const fields = ranges.items();
  return fields.length === 0 ? undefined : warnings.keepValid(fields, cidr);
}

function decodePorts(ports: Field, { hasNodePorts }: { readonly hasNodePorts: boolean }): ServicePortSpec[] {
  const fields = ports.items();
  if (fields.length === 0) throw ports.error('is empty; expected at least one port');
  const names = new Set<string>();
  const portNumbers = new Set<string>();
  const nodePorts = new Set<string>();

  return fields.map((field) => {
    const name = portName(field.get('name'));
    if (name === '' && fields.length > 1)
      throw field.get('name').error('is missing; only a single port may be unnamed');
    addUnique(names, name, field.get('name'));
    const spec: ServicePortSpec = {
      name,
      protocol: protocol(field.get('protocol')),
      port: portNumber(field.get('port')),
      nodePort: hasNodePorts ? decodeNodePort(field.get('nodePort')) : 0,
    };
    addUnique(portNumbers, `${spec.port}/${spec.protocol}`, field.get('port'));
    if (spec.nodePort !== 0) addUnique(nodePorts, `${spec.nodePort}/${spec.protocol}`, field.get('nodePort'));
    return spec;
  });
}

function decodeNodePort(field: Field): number {
  return field.isPresent && field.value !== 0 ? portNumber(field) : 0;
}

function addUnique(seen: Set<string>, value: string, field: Field): void {
  if (seen.has(value)) throw field.wrong('an earlier port of this Service has the same');
  seen.add(value);
}

function decodeAffinity(spec: Field): SessionAffinity {
  const type = spec.get('sessionAffinity');
  if (!type.isPresent || type.value === '' || type.oneOf(['None', 'ClientIP']) === 'None') return { type: 'None' };
  const timeout = spec.get('sessionAffinityConfig').get('clientIP').get('timeoutSeconds');
  return {
    type: 'ClientIP',
    timeoutSeconds: timeout.isPresent ? timeout.integer(1, MAX_AFFINITY_SECONDS) : DEFAULT_AFFINITY_SECONDS,
  };
}

function distinct<T>(values: readonly T[]): T[] {
  return [...new Set(values)];
}
