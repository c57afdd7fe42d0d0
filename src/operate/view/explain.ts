import type { machine } from '../../kernel/addresses.ts';
import { cidrContains, familyOf, type IpFamily } from '../../model/address.ts';
import type { Capture, FollowedPacket, Path } from '../../model/capture.ts';
import type { DataPlane } from '../../model/data-plane.ts';
import { type Endpoint, endpointName, withoutName } from '../../model/endpoint.ts';
import { goesWithout } from '../../model/finding.ts';
import type { ServicePortName } from '../../model/service.ts';
import {
  type CarriedPort,
  type EndpointSetName,
  listenerId,
  type ProxiedProtocol,
  type ServicePort,
  verdictOf,
  whyNotOpen,
} from '../../model/service-port.ts';
import {
  type CandidateView,
  type Explanation,
  isInUse,
  isWell,
  type ListenerView,
  type NoEndpoints,
  type Question,
  type ServiceView,
} from '../../model/view.ts';
import { waitingTerms } from '../../model/waiting.ts';
import type { EndpointVerdict } from '../../services/derive-service-ports.ts';
import type { ServiceTracker } from '../../services/service-tracker.ts';
import type { Clock } from '../../util/clock.ts';
import { formatDuration } from '../../util/duration.ts';
import { foundText } from '../../util/found.ts';
import { counted, listed } from '../../util/text.ts';
import { eachInSlices, oneAtATime } from '../../util/wait.ts';
import { type ClientAddresses, seenAddress, type TakenConnection } from './seen-address.ts';

interface ExplainSources {
  readonly dataPlane: Pick<DataPlane, 'nextPick'>;
  /** Those that are served now. */
  readonly families: () => readonly ExplainedFamily[];
  readonly machine: Machine;
  readonly clientAddresses: ClientAddresses;
  readonly service: (name: ServicePortName, family: IpFamily) => ServiceView | undefined;
  readonly clock: Clock;
}

/** What this program knows of the Service ports of one address family. */
interface ExplainedFamily {
  readonly family: IpFamily;
  readonly capture: Pick<Capture, 'follow'>;
  readonly tracker: Pick<
    ServiceTracker,
    'candidates' | 'noEndpoints' | 'claimants' | 'refusedAt' | 'withAddress' | 'withEndpoint'
  >;
  readonly listeners: {
    carried(name: ServicePortName): CarriedPort | undefined;
    /** Which Service port's listener has a local port. */
    ownerOf(localPort: number, protocol: ProxiedProtocol): ServicePortName | undefined;
  };
}

/** How packets come to this machine, and leave it. */
type Machine = typeof machine;

/**
 * See `View.explain`. The rules in the kernel decide. The answer also has what this program knows, so that a difference
 * is visible. Rejects with a sentence when they cannot be read.
 */
export function createExplain(sources: ExplainSources): (question: Question) => Promise<Explanation> {
  // One at a time: each runs programs many times, and the sync of the rules waits for these, too.
  const explained = oneAtATime((question: Question) => explain(question, sources));
  return async (question) => (await explained(question)) as Explanation;
}

async function explain(question: Question, sources: ExplainSources): Promise<Explanation> {
  const family = familyOf(question.address);
  const known = sources.families().find((each) => each.family === family);
  if (known === undefined) {
    const summary = `${family} is not served on this node; the log says why`;
    return { summary, served: false, rules: [], candidates: [] };
  }
  const { clock, machine } = sources;
  const packet = await packetOf(question, machine);
  const path = await known.capture.follow(packet);
  const { isTaken, text, name, set } = await conclude({ ...known, question, packet, path, machine, clock });
  const service = name && sources.service(name, family);
  const listener = service?.listeners.find((each) => each.set === set);
  const id = isTaken && name !== undefined ? listenerId(name, family, set) : undefined;
  const noEndpoints = name && known.tracker.noEndpoints(name, set);
  const nextPick = id && (await sources.dataPlane.nextPick(id, packet.source));
  const servicePort = name && known.listeners.carried(name)?.servicePort;
  const isDown = isTaken && service?.state === 'down' && hasNoneThatAnswers(listener);
  const onwards: Onwards =
    nextPick === undefined
      ? whenEmpty({ servicePort, service, listener, noEndpoints })
      : { text: whereTo(nextPick, listener, isDown) };
  const { source: client, isOwn } = packet;
  const taken = servicePort && nextPick && { servicePort, set, client, isOwn, endpoint: nextPick };
  return {
    summary: isTaken ? `${text}${onwards.text}` : text,
    served: nextPick !== undefined && !isDown,
    ...(path.caveat !== undefined && { caveat: path.caveat }),
    rules: path.rules,
    ...(service && { service }),
    ...(isTaken && listener && { listener }),
    candidates: name === undefined ? [] : candidatesOf(known.tracker.candidates(name, set), listener),
    ...(noEndpoints && { noEndpoints }),
    ...(isTaken && onwards.wouldWaitMs !== undefined && { wouldWaitMs: onwards.wouldWaitMs }),
    ...(taken && whatEndpointGets({ ...taken, destination: question.address }, sources.clientAddresses)),
  };
}

function whatEndpointGets(
  connection: TakenConnection,
  clientAddresses: ClientAddresses,
): Pick<Explanation, 'nextPick' | 'endpointSees' | 'proxyProtocol'> {
  const { servicePort, endpoint } = connection;
  const proxyProtocol = servicePort.protocol === 'TCP' ? servicePort.options?.proxyProtocol : undefined;
  return {
    nextPick: withoutName(endpoint),
    endpointSees: seenAddress(connection, clientAddresses),
    ...(proxyProtocol && { proxyProtocol }),
  };
}

/** What becomes of a connection that a listener has. */
interface Onwards {
  readonly text: string;
  readonly wouldWaitMs?: number;
}

interface Empty {
  readonly servicePort: ServicePort | undefined;
  readonly service: ServiceView | undefined;
  readonly listener: ListenerView | undefined;
  readonly noEndpoints: NoEndpoints | undefined;
}

/** What becomes of a client for whom the listener has no endpoint now. */
function whenEmpty({ servicePort, service, listener, noEndpoints }: Empty): Onwards {
  const { forEndpointsMs = 0, whileFullMs = 0, max = 0 } = (servicePort && waitingTerms(servicePort)) ?? {};
  const { maxConnections } = servicePort?.options ?? {};
  const isFull = maxConnections !== undefined && listener?.endpoints.some(isInUse);
  const why = isFull
    ? `each of its endpoints has ${counted(maxConnections, 'connection')}, the most that it may have`
    : (noEndpoints?.message ?? 'it has no endpoint at this moment');
  const wouldWaitMs = isFull ? whileFullMs : forEndpointsMs;
  if (wouldWaitMs === 0) return { text: `, but ${why}` };
  if ((service?.counters.waiting ?? 0) >= max) {
    return { text: `, but refuses it, as ${counted(max, 'client')} wait already: ${why}` };
  }
  return { text: `; the client would wait up to ${formatDuration(wouldWaitMs)}: ${why}`, wouldWaitMs };
}

function hasNoneThatAnswers(listener: ListenerView | undefined): boolean {
  const inUse = listener?.endpoints.filter(isInUse) ?? [];
  return inUse.length > 0 && !inUse.some(isWell);
}

async function packetOf({ address, port, protocol, client }: Question, machine: Machine): Promise<FollowedPacket> {
  if (client !== undefined && familyOf(client) !== familyOf(address)) {
    throw new Error(`${client} cannot connect to ${address}: they are of different address families`);
  }
  const common = { address, port, protocol };
  if (client !== undefined && !machine.isLocal(client)) {
    return { ...common, source: client, isOwn: false, inInterface: machine.interfaceTowards(client) };
  }
  const { source = address, interfaceName: outInterface } = await machine.departureTo(address);
  return { ...common, source: client ?? source, isOwn: true, inInterface: '', outInterface };
}

function whereTo(picked: Endpoint, listener: ListenerView | undefined, isDown: boolean): string {
  const name = endpointName(picked);
  const active = listener?.endpoints.filter(isInUse) ?? [];
  const { lastError: failure, state } = active.find(({ endpoint }) => endpointName(endpoint) === name) ?? {};
  const only = active.length === 1 ? ', its only endpoint' : '';
  const failed = failure === undefined ? '' : `${only}; connections to it have failed lately: ${failure.err}`;
  const ejected = state === 'ejected' ? ', which is ejected' : '';
  return `${isDown ? ', but no endpoint answers' : ''}; the next connection goes to ${name}${ejected}${failed}`;
}

function candidatesOf(
  verdicts: readonly EndpointVerdict[],
  listener: ListenerView | undefined,
): readonly CandidateView[] {
  const known = new Map(listener?.endpoints.map((each) => [endpointName(each.endpoint), each]));
  return verdicts.map(({ endpoint, state: { nodeName, zone }, weight, reason }) => {
    const { counters, connectTime, lastError, state } = known.get(endpoint.name) ?? {};
    return {
      endpoint: withoutName(endpoint),
      ...(nodeName !== undefined && { nodeName }),
      ...(zone !== undefined && { zone }),
      chosen: reason === undefined,
      weight,
      ...(reason !== undefined && { reason }),
      ...(counters && { active: counters.active }),
      ...(connectTime && { connectTime }),
      ...(state === 'ejected' && { ejected: true as const }),
      ...(lastError && { lastError }),
    };
  });
}

/** What the kernel's rules do with a packet, and what this program knows. */
interface Facts extends ExplainedFamily {
  readonly question: Question;
  readonly packet: FollowedPacket;
  readonly path: Path;
  readonly machine: Machine;
  readonly clock: Clock;
}

/** What becomes of the connection. */
interface Conclusion {
  /** A listener gets it. */
  readonly isTaken: boolean;
  /** A sentence without its end. */
  readonly text: string;
  readonly name?: ServicePortName | undefined;
  readonly set: EndpointSetName;
}

function notTaken(text: string, name?: ServicePortName, set: EndpointSetName = 'own'): Conclusion {
  return { isTaken: false, text, name, set };
}

const NEXT_SYNC = '(the next sync of the rules corrects that)';

const VERBS = { listener: 'take', reject: 'refuse', closed: 'refuse', drop: 'drop' } as const;

async function conclude(facts: Facts): Promise<Conclusion> {
  const { path, listeners, tracker, question } = facts;
  const { nat, stop } = path;
  if (nat.kind === 'passes') return await untouched(facts, nat);
  if (nat.kind === 'unassigned') return await untouched(facts, { isDropped: true });
  if (nat.kind === 'foreign') return notTaken(nat.text);
  const { name } = nat;
  const carried = listeners.carried(name);
  if (carried === undefined) return notTaken(`a rule sends it to ${name}, which is not served any more ${NEXT_SYNC}`);
  const localPort = nat.kind === 'listener' ? nat.localPort : undefined;
  const set = carried.listeners.find((each) => localPort !== undefined && each.localPort === localPort)?.set;
  if (stop !== undefined) return notTaken(`${name} would ${VERBS[nat.kind]} it, but ${stop}`, name, set);
  if (nat.kind === 'closed') {
    return notTaken(`it is the proxy's own port for ${name}, which is closed to all but this node itself`, name);
  }
  if (nat.kind === 'reject') return turnedAway(facts, carried, 'reject');
  if (nat.kind === 'drop') return outOfRange(facts, carried) ?? turnedAway(facts, carried, 'drop');
  if (set === undefined) {
    return notTaken(
      `a rule sends it to local port ${localPort}, which ${name} does not have any more ${NEXT_SYNC}`,
      name,
    );
  }
  const claimants = tracker.claimants(question.address, question.port, question.protocol);
  const isThere = claimants.some((each) => each.name === name);
  return {
    isTaken: true,
    text: `${name} takes it${isThere ? '' : `, though it no longer has this address ${NEXT_SYNC}`}`,
    name,
    set,
  };
}

function outOfRange({ question, packet }: Facts, { servicePort }: CarriedPort): Conclusion | undefined {
  const { name, loadBalancerSourceRanges: ranges, loadBalancerIPs } = servicePort;
  if (ranges === undefined || !loadBalancerIPs.includes(question.address)) return undefined;
  if (ranges.some((range) => cidrContains(range, packet.source))) return undefined;
  return notTaken(`${name} drops it: ${packet.source} is not in its load balancer source ranges`, name);
}

/** The rules refuse or drop it, as an endpoint set is empty. */
function turnedAway(
  { tracker, question }: Facts,
  { servicePort, listeners }: CarriedPort,
  verdict: 'reject' | 'drop',
): Conclusion {
  const { name, local } = servicePort;
  const isOwn = verdictOf(servicePort, 'own') === verdict;
  const isLocal = !isOwn && local !== undefined && verdictOf(servicePort, 'local') === verdict;
  const set = isLocal ? 'local' : 'own';
  const turnsAway = `${name} ${verdict === 'reject' ? 'refuses' : 'drops'} it`;
  const candidates = tracker.candidates(name, set);
  const isExpected = isLocal || isOwn;
  // The tracker may already know more than the rules do.
  if (!isExpected || candidates.some(({ reason }) => reason === undefined)) {
    const isOpening = listeners.some(({ localPort }) => localPort === undefined);
    const why =
      verdict === 'drop' && isOpening
        ? ' until its listener is open'
        : `, though endpoints have come since ${NEXT_SYNC}`;
    return notTaken(turnsAway + why, name, set);
  }
  if (verdict === 'drop') {
    return notTaken(`${turnsAway}: its policy is Local, and no endpoint on this node may serve`, name, set);
  }
  const { message } = tracker.noEndpoints(name, set) ?? {};
  const isSilent = question.address === LOOPBACK_IPV6 && question.protocol === 'TCP';
  const why = message === undefined ? '' : `: ${message}`;
  return notTaken(`${turnsAway}${isSilent ? SILENT : ''}${why}`, name, set);
}

const LOOPBACK_IPV6 = '::1';
/** The kernel finds no route from the interface of the address that NAT put in its place. */
const SILENT = ', but the kernel sends no reset to ::1, so the client times out';

/** No rule of a Service port decides. `isDropped`: it is in a block of cluster IPs. */
async function untouched(
  facts: Facts,
  { missing, isDropped = false }: { readonly missing?: string | undefined; readonly isDropped?: boolean },
): Promise<Conclusion> {
  const { question, packet, path, listeners, tracker, machine } = facts;
  const { address, port, protocol } = question;
  const [claimant] = tracker.claimants(address, port, protocol);
  if (claimant !== undefined) {
    const { name, clusterIPs, loadBalancerIPs, externalIPs } = claimant;
    const carried = listeners.carried(name);
    const notOpen = carried && whyNotOpen(carried);
    const isNodePort = ![...clusterIPs, ...loadBalancerIPs, ...externalIPs].includes(address);
    if (notOpen !== undefined) return notTaken(`${name} should take it, but ${notOpen}`, name);
    if (missing !== undefined) return notTaken(`${name} should take it, but ${missing} ${NEXT_SYNC}`, name);
    if (!isNodePort) return notTaken(`${name} should take it, but no rule does ${NEXT_SYNC}`, name);
    const unless = 'if --nodeport-addresses allows it, the next sync of the rules brings one';
    return notTaken(`${name} has this NodePort, but no rule takes it at this address; ${unless}`, name);
  }
  const owner = packet.isOwn && machine.isLocal(address) ? listeners.ownerOf(port, protocol) : undefined;
  const set = owner && listeners.carried(owner)?.listeners.find(({ localPort }) => localPort === port)?.set;
  if (owner !== undefined && set !== undefined) {
    const { stop } = path;
    const text = `it is the proxy's own port for ${owner}, which answers to this node itself`;
    return stop === undefined
      ? { isTaken: true, text, name: owner, set }
      : notTaken(`${text}, but ${stop}`, owner, set);
  }
  const where = `no Service is at ${endpointName(question)}/${protocol}`;
  const [refused] = tracker.refusedAt(address, port, protocol);
  if (refused !== undefined) return notTaken(`${refused.name} ${foundText(goesWithout([refused]))}`, refused.name);
  const others = tracker.withAddress(address).map((each) => `${each.port}/${each.protocol} of ${each.name}`);
  const dropped = isDropped ? '; packets to it are dropped, because cluster IPs come from its block' : '';
  if (others.length > 0) return notTaken(`${where}, but this address has ${listed(others, MAX_NAMES)}${dropped}`);
  if (isDropped) return notTaken(where + dropped);
  const names = await servicesWith(facts);
  if (names.length === 0) return notTaken(`${where}, so the proxy leaves it alone`);
  const users = listed(names, MAX_NAMES);
  return notTaken(`${where}; it is an endpoint of ${users}, and its connections do not pass through the proxy`);
}

const MAX_NAMES = 3;

/** The Service ports that have the destination as an endpoint. */
async function servicesWith({ question, tracker, clock }: Facts): Promise<readonly ServicePortName[]> {
  const names = new Set<ServicePortName>();
  await eachInSlices(clock, tracker.withEndpoint(question), (some) => {
    for (const name of some) names.add(name);
  });
  return [...names];
}
