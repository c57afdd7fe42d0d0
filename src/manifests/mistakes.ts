import { API_VERSIONS, groupOf, type Kind } from '../kubernetes/objects/kubernetes-object.ts';
import { suggest } from '../util/suggest.ts';
import { Field, type Problem, show } from '../util/untrusted.ts';

const KINDS = Object.keys(API_VERSIONS) as readonly Kind[];
const GROUPS: ReadonlySet<string> = new Set(Object.values(API_VERSIONS).map(groupOf));

/** A longer name is nobody's typing error, and comparing it takes long. */
const MAX_NAME = 63;

/** Every field of `spec` in a `v1` Service (`k8s.io/api/core/v1/types.go` ServiceSpec), those for others included. */
const SERVICE_SPEC = [
  'allocateLoadBalancerNodePorts',
  'clusterIP',
  'clusterIPs',
  'externalIPs',
  'externalName',
  'externalTrafficPolicy',
  'healthCheckNodePort',
  'internalTrafficPolicy',
  'ipFamilies',
  'ipFamilyPolicy',
  'loadBalancerClass',
  'loadBalancerIP',
  'loadBalancerSourceRanges',
  'ports',
  'publishNotReadyAddresses',
  'selector',
  'sessionAffinity',
  'sessionAffinityConfig',
  'trafficDistribution',
  'type',
] as const;
const SPEC_NAMES: ReadonlySet<string> = new Set(SERVICE_SPEC);

/** One object may not fill the log. */
const MAX_FIELDS = 8;

/**
 * An object that is none of ours, but was meant to be one: of a kind that is nearly ours, or of our kind with the
 * `apiVersion` of another. Files may hold objects of all other kinds and groups.
 * `meant`: the object without the mistake.
 */
export function mistakenKind(object: unknown): { readonly meant: unknown; readonly problem: Problem } | undefined {
  if (!isObject(object)) return undefined;
  const [name, version] = [propertyOf(object, 'kind'), propertyOf(object, 'apiVersion') ?? ''];
  if (typeof name !== 'string' || name.length > MAX_NAME) return undefined;
  if (typeof version !== 'string' || !GROUPS.has(groupOf(version))) return undefined;
  const known = KINDS.find((kind) => kind === name);
  const kind = known ?? suggest(name, KINDS);
  if (kind === undefined) return undefined;
  const apiVersion = API_VERSIONS[kind];
  const meant = { ...object, kind, apiVersion };
  if (known === undefined) {
    return { meant, problem: { field: 'kind', problem: `is ${show(name)}; did you mean ${kind}?` } };
  }
  if (version === '' || groupOf(version) === groupOf(apiVersion)) return undefined;
  return {
    meant,
    problem: { field: 'apiVersion', problem: `is ${show(version)}; write ${apiVersion} for kind ${kind}` },
  };
}

/** What an author of this Service wrote that nothing reads. The API server refuses or removes it. */
export function partsWithoutEffect(service: unknown): Problem[] {
  const spec = propertyOf(service, 'spec');
  return [...unknownFields(spec), ...unusedNodePorts(spec)].slice(0, MAX_FIELDS);
}

function unknownFields(spec: unknown): Problem[] {
  if (!isObject(spec)) return [];
  const unknown = Object.keys(spec).filter((name) => !SPEC_NAMES.has(name));
  return unknown.slice(0, MAX_FIELDS).map((name) => {
    const short = name.slice(0, MAX_NAME);
    const meant = suggest(short, SERVICE_SPEC);
    const advice = meant === undefined ? 'correct or remove it' : `did you mean ${meant}?`;
    return {
      field: Field.root({ spec }).get('spec').get(short).path,
      problem: `is not a field of a Service; ${advice}`,
    };
  });
}

function unusedNodePorts(spec: unknown): Problem[] {
  const ports = propertyOf(spec, 'ports');
  if ((propertyOf(spec, 'type') ?? 'ClusterIP') !== 'ClusterIP' || !Array.isArray(ports)) return [];
  return ports.flatMap((port, index) => {
    const nodePort = propertyOf(port, 'nodePort') ?? 0;
    if (nodePort === 0) return [];
    const problem = `is ${show(nodePort)}, but a Service of type ClusterIP has none; write type: NodePort, or remove it`;
    return [{ field: `spec.ports[${index}].nodePort`, problem }];
  });
}

function propertyOf(value: unknown, name: string): unknown {
  return isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
