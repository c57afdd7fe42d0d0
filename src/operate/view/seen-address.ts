import { type Address, cidrContains, familyOf } from '../../model/address.ts';
import { type ClientAddressPolicy, type ClientFacts, keptAddresses } from '../../model/client-address.ts';
import type { Endpoint } from '../../model/endpoint.ts';
import type { EndpointSetName, ServicePort } from '../../model/service-port.ts';
import type { SeenAddress } from '../../model/view.ts';
import { canSee, isKeptTowards, KnownClients } from '../../services/known-clients.ts';

/** A connection that a listener gets. */
export interface TakenConnection {
  readonly servicePort: ServicePort;
  readonly set: EndpointSetName;
  readonly client: Address;
  /** From a program of this node. */
  readonly isOwn: boolean;
  readonly destination: Address;
  readonly endpoint: Endpoint;
}

/** What a node knows and wants to keep of clients' addresses. */
export interface ClientAddresses {
  readonly policy: ClientAddressPolicy;
  /** Of the data plane; `undefined` until it has any. */
  readonly facts: () => ClientFacts | undefined;
}

/** Whose address the endpoint of a connection sees (docs/adr/0023). The data plane decides in the same way. */
export function seenAddress(connection: TakenConnection, { policy, facts }: ClientAddresses): SeenAddress {
  const { servicePort, set, client, isOwn, destination, endpoint } = connection;
  const kept = keptAddresses(servicePort, set, policy);
  const known = facts();
  const isKept =
    kept !== undefined &&
    known !== undefined &&
    isKeptTowards(destination, new KnownClients(known).keptFor(kept, client), kept);
  if (isKept && !isOwn && canSee(endpoint.address, client)) return { address: 'client' };
  return { address: 'node', reason: reasonToHide(connection, policy, known) };
}

function reasonToHide(
  { servicePort, client, isOwn, destination, endpoint }: TakenConnection,
  policy: ClientAddressPolicy,
  facts: ClientFacts | undefined,
): string {
  const asked = servicePort.options?.clientAddress;
  if (asked === 'node') return 'the annotation kube-userspace-proxy/client-address says so';
  if (asked === undefined && policy.clientAddress === 'node') return '--client-address says so';
  if (isOwn) return 'the client is this node';
  if (client === endpoint.address) return 'the client is the endpoint itself';
  const isInternal = servicePort.clusterIPs.includes(destination);
  if (!isInternal && servicePort.local?.external !== true) return 'externalTrafficPolicy is Cluster';
  if (isInternal && policy.masqueradeAll) return '--masquerade-all says so';
  if (facts?.routedApart?.some((cidr) => cidrContains(cidr, client))) {
    return 'policy routing (ip rule) sends packets of this client another way than those of the node';
  }
  const isPod = facts?.podCidrs?.some((cidr) => cidrContains(cidr, client)) ?? true;
  if (isInternal && !isPod) return 'the client is not a pod';
  return `this machine cannot keep the addresses of ${familyOf(client)} clients; check says what it lacks`;
}
