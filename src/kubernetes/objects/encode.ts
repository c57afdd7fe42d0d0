import { familyOf } from '../../model/address.ts';
import type { EndpointAddress, EndpointGroup, EndpointPort, EndpointSlice, Endpoints } from '../../model/endpoint.ts';
import type { Service, ServicePortSpec } from '../../model/service.ts';
import { PREFIX } from './annotations.ts';
import { API_VERSIONS, type KubernetesObject } from './kubernetes-object.ts';
import { encodeServiceOptions } from './service-options.ts';

/*
 * The way back: objects as an API server, or an author of manifests, would write them, so that the decoders of this
 * folder read the same value again. What they have left out of an object does not come back: labels, bad parts,
 * annotations that are refused, the time of a change.
 */

type Json = Readonly<Record<string, unknown>>;

/** A range that no decoder can read: without any range, everybody would be let in. */
const NOBODY = 'none';

export function encodeObject({ kind, key, value }: KubernetesObject): Json {
  const slash = key.indexOf('/');
  const identity = { namespace: key.slice(0, slash), name: key.slice(slash + 1) };
  const object = (metadata: Json, rest: Json): Json => {
    return { apiVersion: API_VERSIONS[kind], kind, metadata: { ...identity, ...metadata }, ...rest };
  };
  switch (kind) {
    case 'Service':
      return object(serviceMetadata(value), serviceBody(value));
    case 'EndpointSlice':
      return object(sliceMetadata(value), sliceBody(value.group));
    case 'Endpoints':
      return object(weightOf(value.groups[0]), { subsets: value.groups.map(subset) });
  }
}

function serviceMetadata({ uid, options }: Service): Json {
  const annotations = options === undefined ? {} : encodeServiceOptions(options);
  return { ...(uid !== undefined && { uid }), ...(Object.keys(annotations).length > 0 && { annotations }) };
}

function serviceBody(service: Service): Json {
  const { clusterIPs, families, externalIPs, loadBalancerIPs, ports, affinity } = service;
  const { internalTrafficPolicy, externalTrafficPolicy, loadBalancerSourceRanges: ranges } = service;
  const { healthCheckNodePort } = service;
  const isDual = families !== undefined && families.length > 1;
  const spec = {
    type: typeOf(service),
    ...(clusterIPs.length > 0 && { clusterIP: clusterIPs[0], clusterIPs }),
    ...(families !== undefined && { ipFamilies: families, ...(isDual && { ipFamilyPolicy: 'PreferDualStack' }) }),
    ...(externalIPs.length > 0 && { externalIPs }),
    ports: ports.map(servicePort),
    ...(affinity.type === 'ClientIP' && {
      sessionAffinity: 'ClientIP',
      sessionAffinityConfig: { clientIP: { timeoutSeconds: affinity.timeoutSeconds } },
    }),
    ...(internalTrafficPolicy !== undefined && { internalTrafficPolicy }),
    ...(externalTrafficPolicy !== undefined && { externalTrafficPolicy }),
    ...(ranges !== undefined && {
      loadBalancerSourceRanges:
        ranges.length === 0 ? [NOBODY] : ranges.map(({ network, prefixLength }) => `${network}/${prefixLength}`),
    }),
    ...(healthCheckNodePort !== undefined && { healthCheckNodePort }),
  };
  if (loadBalancerIPs.length === 0) return { spec };
  return { spec, status: { loadBalancer: { ingress: loadBalancerIPs.map((ip) => ({ ip })) } } };
}

/** Decides only whether NodePorts and the health check count. */
function typeOf({ ports, healthCheckNodePort }: Service): string {
  if (healthCheckNodePort !== undefined) return 'LoadBalancer';
  return ports.some(({ nodePort }) => nodePort !== 0) ? 'NodePort' : 'ClusterIP';
}

function servicePort({ name, protocol, port, nodePort, targetPort }: ServicePortSpec): Json {
  return {
    ...(name !== '' && { name }),
    protocol,
    port,
    ...(nodePort !== 0 && { nodePort }),
    ...(targetPort !== undefined && { targetPort }),
  };
}

function sliceMetadata({ service, group }: EndpointSlice): Json {
  const name = service.slice(service.indexOf('/') + 1);
  return { labels: { 'kubernetes.io/service-name': name }, ...weightOf(group) };
}

function weightOf(group: EndpointGroup | undefined): Json {
  return group?.weight === undefined ? {} : { annotations: { [`${PREFIX}weight`]: `${group.weight}` } };
}

function sliceBody({ addresses, ports }: EndpointGroup): Json {
  const [first] = addresses;
  return {
    addressType: first === undefined ? 'IPv4' : familyOf(first.address),
    endpoints: addresses.map(sliceEndpoint),
    ports: ports.map(endpointPort),
  };
}

function sliceEndpoint(endpoint: EndpointAddress): Json {
  const { address, ready, serving, terminating, nodeName, zone, nodeHints, zoneHints } = endpoint;
  const named = (names: readonly string[]) => names.map((name) => ({ name }));
  return {
    addresses: [address],
    conditions: { ready, serving, terminating },
    ...(nodeName !== undefined && { nodeName }),
    ...(zone !== undefined && { zone }),
    ...((nodeHints ?? zoneHints) !== undefined && {
      hints: {
        ...(nodeHints !== undefined && { forNodes: named(nodeHints) }),
        ...(zoneHints !== undefined && { forZones: named(zoneHints) }),
      },
    }),
    ...target(endpoint),
  };
}

function target({ isVouchedFor, podName }: EndpointAddress): Json {
  return isVouchedFor ? { targetRef: { kind: 'Pod', ...(podName !== undefined && { name: podName }) } } : {};
}

function endpointPort({ name, protocol, port }: EndpointPort): Json {
  return { ...(name !== '' && { name }), protocol, port };
}

function subset({ addresses, ports }: Endpoints['groups'][number]): Json {
  const those = (isReady: boolean) =>
    addresses
      .filter(({ ready }) => ready === isReady)
      .map((each) => ({
        ip: each.address,
        ...(each.nodeName !== undefined && { nodeName: each.nodeName }),
        ...target(each),
      }));
  return { addresses: those(true), notReadyAddresses: those(false), ports: ports.map(endpointPort) };
}
