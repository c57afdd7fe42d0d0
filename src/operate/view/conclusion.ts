import { type Address, cidrContains, type IpFamily } from '../../model/address.ts';
import { endpointName } from '../../model/endpoint.ts';
import type { ServicePortName } from '../../model/service.ts';
import {
  type CarriedPort,
  type EndpointSet,
  type EndpointSetName,
  type ProxiedProtocol,
  type ServicePort,
  verdictOf,
} from '../../model/service-port.ts';
import type { Question } from '../../model/view.ts';
import { DROP_PORT, JUMPS, PORTALS_CONTAINER, PORTALS_HOST, REJECT_PORT } from '../../rules/chains.ts';
import type { TracedPacket } from '../../rules/explain-match.ts';
import { type RuleOwner, ruleOwner } from '../../rules/explain-owner.ts';
import type { Fate, Path, TracedRule } from '../../rules/explain-path.ts';
import type { EndpointVerdict } from '../../services/derive-service-ports.ts';
import type { ServiceTracker } from '../../services/service-tracker.ts';
import type { Clock } from '../../util/clock.ts';
import { inSlices } from '../../util/wait.ts';

/** What this program knows of the Service ports of one address family. */
export interface ExplainedFamily {
  readonly family: IpFamily;
  readonly tracker: Pick<ServiceTracker, 'candidates' | 'claimants' | 'withEndpoint'>;
  readonly listeners: {
    carried(name: ServicePortName): CarriedPort | undefined;
    /** Which Service port's listener has a local port. */
    ownerOf(localPort: number, protocol: ProxiedProtocol): ServicePortName | undefined;
  };
}

/** What the kernel's rules do with a packet, and what this program knows. */
export interface Facts extends Pick<ExplainedFamily, 'tracker' | 'listeners'> {
  readonly question: Question;
  readonly packet: TracedPacket;
  readonly path: Path;
  readonly isLocal: (address: Address) => boolean;
  readonly clock: Clock;
}

/** What becomes of the connection; `text` is a sentence without its end. */
export type Conclusion = Taken | NotTaken;

/** A listener gets it. */
interface Taken {
  readonly kind: 'taken';
  readonly text: string;
  readonly name: ServicePortName;
  readonly set: EndpointSetName;
}

interface NotTaken {
  readonly kind: 'not taken';
  readonly text: string;
  /** Whom it is about, if anyone. */
  readonly name?: ServicePortName;
  readonly set: EndpointSetName;
}

export async function conclude(facts: Facts): Promise<Conclusion> {
  const { nat } = facts.path;
  switch (nat.kind) {
    case 'passes':
      return await untouched(facts);
    case 'unclear':
    case 'dropped':
    case 'rejected':
      return nobody(stopped(nat, facts.packet.isOwn ? 'nat OUTPUT' : 'nat PREROUTING'));
    case 'sent':
      return sent(facts, nat);
  }
}

/** What a Service does at a port that no listener has. */
const AT_DOORS: ReadonlyMap<number, string> = new Map([
  [REJECT_PORT, 'refuse'],
  [DROP_PORT, 'drop'],
]);

const NEXT_SYNC = '(the next sync of the rules corrects that)';

function sent(facts: Facts, { to, by }: Extract<Fate, { kind: 'sent' }>): Conclusion {
  const owner = ruleOwner(by);
  if (owner === undefined) {
    const where =
      to.address === undefined ? `port ${to.port} of this node` : endpointName({ ...to, address: to.address });
    return nobody(`a rule that is not ours sends it to ${where}: ${shown(by)}`);
  }
  const { name } = owner;
  const { output, input } = facts.path;
  const carried = facts.listeners.carried(name);
  if (carried === undefined) return nobody(`a rule leads it to ${name}, which is not served any more ${NEXT_SYNC}`);
  const listener = carried.listeners.find(({ localPort }) => localPort === to.port);
  const stop = stopIn(output, 'filter OUTPUT');
  if (stop !== undefined)
    return about(name, `${name} would ${AT_DOORS.get(to.port) ?? 'take'} it, but ${stop}`, listener?.set);
  if (to.port === REJECT_PORT) return refused(facts, owner, carried.servicePort);
  if (to.port === DROP_PORT) return dropped(facts, carried);
  if (listener === undefined) {
    return about(name, `a rule leads it to local port ${to.port}, which ${name} does not have any more ${NEXT_SYNC}`);
  }
  const { set } = listener;
  const stopAtLast = stopIn(input, 'filter INPUT');
  if (stopAtLast !== undefined) return about(name, `${name} would take it, but ${stopAtLast}`, set);
  const isThere = claimants(facts).some((each) => each.name === name);
  return {
    kind: 'taken',
    text: `${name} takes it${isThere ? '' : `, though it is not there any more ${NEXT_SYNC}`}`,
    name,
    set,
  };
}

function refused({ tracker }: Facts, { name, isClosing }: RuleOwner, servicePort: ServicePort): Conclusion {
  if (isClosing) {
    return about(name, `it is the proxy's own port for ${name}, which is closed to all but this node itself`);
  }
  const set = setWith('reject', servicePort);
  const candidates = set === undefined ? [] : tracker.candidates(name, set);
  if (set === undefined || candidates.some(mayServe)) {
    return about(name, `${name} refuses it, though endpoints have come since ${NEXT_SYNC}`, set);
  }
  return about(name, `${name} refuses it: ${whyNone(candidates)}`, set);
}

function dropped({ question, packet, tracker }: Facts, { servicePort, listeners }: CarriedPort): Conclusion {
  const { name, loadBalancerSourceRanges: ranges, loadBalancerIPs } = servicePort;
  if (ranges !== undefined && loadBalancerIPs.includes(question.address)) {
    const isAllowed = ranges.some((range) => cidrContains(range, packet.source));
    if (!isAllowed) return about(name, `${name} drops it: ${packet.source} is not in its load balancer source ranges`);
  }
  const set = setWith('drop', servicePort);
  if (set !== undefined && !tracker.candidates(name, set).some(mayServe)) {
    return about(name, `${name} drops it: its policy is Local, and no endpoint on this node may serve`, set);
  }
  const isOpen = listeners.every(({ localPort }) => localPort !== undefined);
  return about(
    name,
    `${name} drops it${isOpen ? `, though endpoints have come since ${NEXT_SYNC}` : ' until its listener is open'}`,
    set,
  );
}

/** No rule of nat has anything to do with it. */
async function untouched(facts: Facts): Promise<Conclusion> {
  const { question, packet, path, listeners } = facts;
  const [claimant] = claimants(facts);
  if (claimant !== undefined) return about(claimant.name, whyUntouched(facts, claimant));
  const owner =
    packet.isOwn && facts.isLocal(question.address) ? listeners.ownerOf(question.port, question.protocol) : undefined;
  const listener = owner && listeners.carried(owner)?.listeners.find(({ localPort }) => localPort === question.port);
  if (owner !== undefined && listener !== undefined) {
    const text = `it is the proxy's own port for ${owner}, which answers to this node itself`;
    const stop = stopIn(path.output, 'filter OUTPUT') ?? stopIn(path.input, 'filter INPUT');
    if (stop !== undefined) return about(owner, `${text}, but ${stop}`, listener.set);
    return { kind: 'taken', text, name: owner, set: listener.set };
  }
  const where = `${endpointName(question)}/${question.protocol}`;
  const having = await endpointOf(facts);
  if (having.length === 0) return nobody(`no Service is at ${where}, so the proxy leaves it alone`);
  return nobody(
    `no Service is at ${where}; it is an endpoint of ${listed(having)}, and its connections do not pass through the proxy`,
  );
}

/** Whose endpoint is asked for. */
async function endpointOf({ question, tracker, clock }: Facts): Promise<readonly ServicePortName[]> {
  const names = new Set<ServicePortName>();
  const steps = tracker.withEndpoint(question);
  await inSlices(clock, () => {
    const { done, value = [] } = steps.next();
    for (const name of value) names.add(name);
    return !done;
  });
  return [...names];
}

function whyUntouched({ question, packet, path, listeners }: Facts, claimant: ServicePort): string {
  const { name, clusterIPs, loadBalancerIPs, externalIPs } = claimant;
  if (listeners.carried(name)?.listeners.some(({ localPort }) => localPort === undefined)) {
    return `${name} is to take it, but its listener is not open yet`;
  }
  const portals = packet.isOwn ? PORTALS_HOST : PORTALS_CONTAINER;
  const jump = JUMPS.find(({ to }) => to === portals);
  if (!path.rules.some(({ rule }) => rule === jump?.spec)) {
    return `${name} is to take it, but no rule leads to ${portals} ${NEXT_SYNC}`;
  }
  const { address } = question;
  if ([...clusterIPs, ...loadBalancerIPs, ...externalIPs].includes(address)) {
    return `${name} is to take it, but no rule does ${NEXT_SYNC}`;
  }
  return `${name} has this NodePort, but no rule takes it at this address; if --nodeport-addresses allows it, the next sync of the rules brings one`;
}

function claimants({ tracker, question: { address, port, protocol } }: Facts): readonly ServicePort[] {
  return tracker.claimants(address, port, protocol);
}

/** Which of the endpoint sets makes rules do that. */
function setWith(verdict: ReturnType<typeof verdictOf>, servicePort: ServicePort): EndpointSetName | undefined {
  const sets: readonly (readonly [EndpointSetName, EndpointSet | undefined])[] = [
    ['own', servicePort],
    ['local', servicePort.local],
  ];
  return sets.find(([, set]) => set !== undefined && verdictOf(set) === verdict)?.[0];
}

/** It was chosen: the tracker may know more by now than the rules do. */
function mayServe({ reason }: EndpointVerdict): boolean {
  return reason === undefined;
}

/** "none of its 3 endpoints may serve: 2 not ready, 1 drained by an operator" */
function whyNone(candidates: readonly EndpointVerdict[]): string {
  if (candidates.length === 0) return 'it has no endpoints';
  const reasons = [...Map.groupBy(candidates, ({ reason }) => reason)].map(
    ([reason, { length }]) => `${length} ${reason}`,
  );
  return `none of its ${candidates.length} endpoints may serve: ${reasons.join(', ')}`;
}

/** What keeps it from going on. `undefined` when nothing does. */
function stopIn(fate: Fate, chain: string): string | undefined {
  return fate.kind === 'passes' || fate.kind === 'sent' ? undefined : stopped(fate, chain);
}

/** `chain`: the built-in one whose policy it was, if no rule was it. */
function stopped(fate: Exclude<Fate, { kind: 'passes' | 'sent' }>, chain: string): string {
  if (fate.kind === 'unclear') return `a rule decides of which it cannot be told what it does: ${shown(fate.by)}`;
  const verb = fate.kind === 'dropped' ? 'drops' : 'rejects';
  return fate.by === undefined ? `the policy of ${chain} ${verb} it` : `a rule ${verb} it: ${shown(fate.by)}`;
}

function shown({ table, chain, rule }: TracedRule): string {
  return `${table} ${chain} ${rule}`;
}

const MAX_NAMES = 3;

function listed(names: readonly string[]): string {
  const more = names.length > MAX_NAMES ? ` and ${names.length - MAX_NAMES} more` : '';
  return `${names.slice(0, MAX_NAMES).join(', ')}${more}`;
}

function about(name: ServicePortName, text: string, set: EndpointSetName = 'own'): NotTaken {
  return { kind: 'not taken', text, name, set };
}

function nobody(text: string): NotTaken {
  return { kind: 'not taken', text, set: 'own' };
}
