import type { Cidr } from '../../model/address.ts';
import { type Address, FAMILIES, familyOf, type IpFamily } from '../../model/address.ts';
import type { Service, ServicePortSpec, SessionAffinity, TrafficPolicy } from '../../model/service.ts';
import type { Field } from '../../util/untrusted.ts';
import { type FileRules, Skip, type Warnings } from './decoded.ts';
import { address, cidr, dnsLabel, keyOf, portName, portNumber, protocol, skipByLabel, uidOf } from './fields.ts';
import { decodeServiceOptions } from './service-options.ts';

const FAMILY_POLICIES = ['SingleStack', 'PreferDualStack', 'RequireDualStack'] as const;
const TYPES = ['ClusterIP', 'NodePort', 'LoadBalancer', 'ExternalName'] as const;
const IP_MODES = ['VIP', 'Proxy'] as const;
const TRAFFIC_POLICIES = ['Cluster', 'Local'] as const;
const DEFAULT_AFFINITY_SECONDS = 10_800;
const MAX_AFFINITY_SECONDS = 86_400;

/**
 * A `v1` Service. Skipped as upstream does (`pkg/proxy/util/utils.go` ShouldSkipService and the labels of its watch):
 * headless and ExternalName Services, and those of another proxy. In a file, the cluster IP may be missing of a Service
 * that gets one later, or that has other addresses or NodePorts.
 */
export function decodeService(root: Field, warnings: Warnings, file?: FileRules): Service {
  const key = keyOf(root, dnsLabel);
  const spec = root.get('spec');
  const type = spec.get('type').isPresent ? spec.get('type').oneOf(TYPES) : 'ClusterIP';
  if (type === 'ExternalName') throw new Skip('its type is ExternalName');
  skipByLabel(root);
  const clusterIPs = decodeClusterIPs(spec);
  const ranges = file?.clusterIpFamilies ?? [];
  if (clusterIPs.length === 0 && isHeadless(spec)) throw new Skip('it is headless');
  if (clusterIPs.length === 0 && file === undefined) throw unassigned(spec);
  const families = clusterIPs.length === 0 ? decodeFamilies(spec, ranges) : undefined;
  const internalTrafficPolicy = decodePolicy(spec.get('internalTrafficPolicy'));
  const externalTrafficPolicy = decodePolicy(spec.get('externalTrafficPolicy'));
  const loadBalancerSourceRanges = decodeSourceRanges(spec.get('loadBalancerSourceRanges'), warnings);
  const healthCheckNodePort = decodeNodePort(spec.get('healthCheckNodePort'));
  // As upstream (`pkg/api/v1/service/util.go` NeedsHealthCheck): for other Services the number is a leftover.
  const hasHealthCheck = type === 'LoadBalancer' && externalTrafficPolicy === 'Local' && healthCheckNodePort !== 0;
  const uid = uidOf(root);
  const ports = decodePorts(spec.get('ports'), { hasNodePorts: type !== 'ClusterIP', isOfFile: file !== undefined });
  const options = decodeServiceOptions(root, ports, warnings);
  const externalIPs = distinct(warnings.keepValid(spec.get('externalIPs').items(), (field) => address(field)));
  const loadBalancerIPs = decodeIngress(root.get('status').get('loadBalancer').get('ingress'), warnings);
  const isReachable = externalIPs.length + loadBalancerIPs.length > 0 || ports.some(({ nodePort }) => nodePort !== 0);
  const served = isReachable ? families : families?.filter((family) => ranges.includes(family));
  if (served?.length === 0) throw unassigned(spec, ranges, families);
  return {
    key,
    ...(uid !== undefined && { uid }),
    clusterIPs,
    ...(served !== undefined && { families: served }),
    externalIPs,
    loadBalancerIPs,
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

  const addresses = fields.map((field) => address(field));
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

function isHeadless(spec: Field): boolean {
  return [spec.get('clusterIP'), ...spec.get('clusterIPs').items()].some(({ value }) => value === 'None');
}

/** An API server assigns a missing address. `ranges`: families in which files get one, none of them of `families`. */
function unassigned(spec: Field, ranges: readonly IpFamily[] = [], families: readonly IpFamily[] = []): Skip {
  const range = ranges.length === 0 ? '' : ` a range of ${families.join(' or ')}, too`;
  const advice = `write a free address, or give --service-cluster-ip-range${range}`;
  const found = 'is missing, and only an API server assigns one';
  return new Skip('it has no cluster IP', { field: spec.get('clusterIP').path, found, advice });
}

/** As an API server fills them in: one family unless the Service asks for both, by default the cluster's first. */
function decodeFamilies(spec: Field, [first = 'IPv4']: readonly IpFamily[]): readonly IpFamily[] {
  const policy = spec.get('ipFamilyPolicy');
  const named = distinct(
    spec
      .get('ipFamilies')
      .items()
      .map((field) => field.oneOf(FAMILIES)),
  );
  const wanted = named.length > 0 ? named : [first];
  const isDual = policy.isPresent && policy.oneOf(FAMILY_POLICIES) !== 'SingleStack';
  return isDual ? distinct([...wanted, ...FAMILIES]) : wanted;
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
  return distinct(warnings.keepValid(fields, (field) => address(field)));
}

function decodePolicy(policy: Field): TrafficPolicy {
  return policy.isPresent && policy.value !== '' ? policy.oneOf(TRAFFIC_POLICIES) : 'Cluster';
}

/** `undefined` without ranges. Bad ranges are left out; if none is left, all clients are refused. */
function decodeSourceRanges(ranges: Field, warnings: Warnings): Cidr[] | undefined {
  const fields = ranges.items();
  return fields.length === 0 ? undefined : warnings.keepValid(fields, cidr);
}

interface PortRules {
  readonly hasNodePorts: boolean;
  readonly isOfFile: boolean;
}

function decodePorts(ports: Field, { hasNodePorts, isOfFile }: PortRules): ServicePortSpec[] {
  const fields = ports.items();
  if (fields.length === 0) throw ports.error('is empty', 'expected at least one port');
  const names = new Set<string>();
  const portNumbers = new Set<string>();
  const nodePorts = new Set<string>();

  return fields.map((field) => {
    const name = portName(field.get('name'));
    if (name === '' && fields.length > 1)
      throw field.get('name').error('is missing', 'only a single port may be unnamed');
    addUnique(names, name, field.get('name'));
    const { value: targetPort } = field.get('targetPort');
    const spec: ServicePortSpec = {
      name,
      protocol: protocol(field.get('protocol')),
      port: portNumber(field.get('port')),
      nodePort: hasNodePorts ? decodeNodePort(field.get('nodePort')) : 0,
      ...(isOfFile && typeof targetPort === 'number' && { targetPort }),
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
