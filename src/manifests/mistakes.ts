import { API_VERSIONS, groupOf, type Kind } from '../kubernetes/objects/kubernetes-object.ts';
import { suggest } from '../util/suggest.ts';
import { Field, isObject, type Problem, show } from '../util/untrusted.ts';

const KINDS = Object.keys(API_VERSIONS) as readonly Kind[];
const GROUPS: ReadonlySet<string> = new Set(Object.values(API_VERSIONS).map(groupOf));

/** A longer name is no typing error, and comparing it takes long. */
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

/** The fields of an object that a file may hold; what `within` does not name is not looked into. */
interface Shape {
  readonly names: readonly string[];
  /** Of an object, or of each in a list. */
  readonly within?: Readonly<Record<string, Shape>>;
}

/** Every field of every object has to be here, those for others included (`k8s.io/api`: `core/v1`, `discovery/v1`). */
const OBJECT = ['apiVersion', 'kind', 'metadata'] as const;
const SUBSET_ADDRESS: Shape = { names: ['hostname', 'ip', 'nodeName', 'targetRef'] };
const ENDPOINT_PORTS: Shape = { names: ['appProtocol', 'name', 'port', 'protocol'] };

const SERVICE: Shape = {
  names: [...OBJECT, 'spec', 'status'],
  within: {
    spec: {
      names: SERVICE_SPEC,
      within: {
        ports: { names: ['appProtocol', 'name', 'nodePort', 'port', 'protocol', 'targetPort'] },
        sessionAffinityConfig: { names: ['clientIP'], within: { clientIP: { names: ['timeoutSeconds'] } } },
      },
    },
  },
};
const ENDPOINTS: Shape = {
  names: [...OBJECT, 'subsets'],
  within: {
    subsets: {
      names: ['addresses', 'notReadyAddresses', 'ports'],
      within: { addresses: SUBSET_ADDRESS, notReadyAddresses: SUBSET_ADDRESS, ports: ENDPOINT_PORTS },
    },
  },
};
const HINTS: Shape = { names: ['name'] };
const ENDPOINT_SLICE: Shape = {
  names: [...OBJECT, 'addressType', 'endpoints', 'ports'],
  within: {
    endpoints: {
      names: [
        ...['addresses', 'conditions', 'deprecatedTopology', 'hints', 'hostname', 'nodeName', 'targetRef', 'zone'],
      ],
      within: {
        conditions: { names: ['ready', 'serving', 'terminating'] },
        hints: { names: ['forNodes', 'forZones'], within: { forNodes: HINTS, forZones: HINTS } },
      },
    },
    ports: ENDPOINT_PORTS,
  },
};
const SHAPES: Readonly<Record<Kind, Shape>> = {
  Service: SERVICE,
  Endpoints: ENDPOINTS,
  EndpointSlice: ENDPOINT_SLICE,
};

const NAMES: Readonly<Record<Kind, string>> = {
  Service: 'a Service',
  Endpoints: 'Endpoints',
  EndpointSlice: 'an EndpointSlice',
};

/** One object may not fill the log. */
const MAX_FIELDS = 8;

/**
 * An object that the proxy does not use, but was meant to: of a kind that is nearly one of these, or of such a kind
 * with the `apiVersion` of another. Files may hold objects of all other kinds and groups. `meant`: the object without
 * the mistake.
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
    return { meant, problem: { field: 'kind', found: `is ${show(name)}`, advice: `did you mean ${kind}?` } };
  }
  if (version === '' || groupOf(version) === groupOf(apiVersion)) return undefined;
  return {
    meant,
    problem: { field: 'apiVersion', found: `is ${show(version)}`, advice: `write ${apiVersion} for kind ${kind}` },
  };
}

/** What the author of this object wrote that nothing reads. The API server refuses or removes it. */
export function partsWithoutEffect(object: unknown, kind: Kind): Problem[] {
  const problems: Problem[] = [];
  for (const problem of unknownFields(Field.root(object), SHAPES[kind], kind)) {
    problems.push(problem);
    if (problems.length === MAX_FIELDS) return problems;
  }
  const unused = kind === 'Service' ? unusedNodePorts(propertyOf(object, 'spec')) : [];
  return [...problems, ...unused].slice(0, MAX_FIELDS);
}

function* unknownFields(object: Field, { names, within = {} }: Shape, kind: Kind): Generator<Problem> {
  if (!isObject(object.value)) return;
  for (const name in object.value) {
    if (names.includes(name)) continue;
    const short = name.slice(0, MAX_NAME);
    const meant = names.find((each) => each.toLowerCase() === short.toLowerCase()) ?? suggest(short, names);
    const advice = meant === undefined ? 'correct or remove it' : `did you mean ${meant}?`;
    yield { field: object.get(short).path, found: `is not a field of ${NAMES[kind]}`, advice };
  }
  for (const [name, shape] of Object.entries(within)) {
    const part = object.get(name);
    for (const each of Array.isArray(part.value) ? part.items() : [part]) yield* unknownFields(each, shape, kind);
  }
}

function unusedNodePorts(spec: unknown): Problem[] {
  const ports = propertyOf(spec, 'ports');
  if ((propertyOf(spec, 'type') ?? 'ClusterIP') !== 'ClusterIP' || !Array.isArray(ports)) return [];
  return ports.flatMap((port, index) => {
    const nodePort = propertyOf(port, 'nodePort') ?? 0;
    if (nodePort === 0) return [];
    const found = `is ${show(nodePort)}, but a Service of type ClusterIP has none`;
    return [{ field: `spec.ports[${index}].nodePort`, found, advice: 'write type: NodePort, or remove it' }];
  });
}

function propertyOf(value: unknown, name: string): unknown {
  return isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
}
