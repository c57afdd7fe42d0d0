import { type Address, familyOf, type IpFamily } from '../../model/address.ts';
import type { DataPlane } from '../../model/data-plane.ts';
import { type Endpoint, endpointName } from '../../model/endpoint.ts';
import type { Iptables } from '../../model/iptables.ts';
import type { ServicePortName } from '../../model/service.ts';
import { listenerId } from '../../model/service-port.ts';
import type { CandidateView, Explanation, ListenerView, Question, ServiceView } from '../../model/view.ts';
import type { TracedPacket } from '../../rules/explain-match.ts';
import { explainPath, type ListChain } from '../../rules/explain-path.ts';
import type { EndpointVerdict } from '../../services/derive-service-ports.ts';
import type { Clock } from '../../util/clock.ts';
import { type Conclusion, conclude, type ExplainedFamily } from './conclusion.ts';

export interface ExplainSources {
  readonly iptables: Pick<Iptables, 'list'>;
  readonly dataPlane: Pick<DataPlane, 'nextPick'>;
  /** Those that are served now. */
  readonly families: () => readonly ExplainedFamily[];
  readonly machine: Machine;
  readonly service: (name: ServicePortName, family: IpFamily) => ServiceView | undefined;
  readonly clock: Clock;
}

/** What is known of how packets come to this machine, and leave it. */
export interface Machine {
  isLocal(address: Address): boolean;
  /** How packets that it makes leave for there. */
  departureTo(address: Address): Departure;
  /** The interface by which packets come in from there; `undefined` when that is not known. */
  interfaceTowards(client: Address): string | undefined;
}

export interface Departure {
  /** From which they are sent; `undefined` when that is not known. */
  readonly source: Address | undefined;
  /** By which they leave; `undefined` when that is not known. */
  readonly interfaceName: string | undefined;
}

/**
 * See `View.explain`. What decides is what is in the kernel now; beside that stands what this program knows, so that a
 * difference between the two shows. Rejects with a sentence when iptables cannot be asked.
 */
export function createExplain(sources: ExplainSources): (question: Question) => Promise<Explanation> {
  // One at a time: each asks iptables again and again, which the sync of rules waits for, too.
  let last: Promise<unknown> = Promise.resolve();
  return (question) => {
    const explanation = last.then(() => explain(question, sources));
    // Whoever asked hears of a failure; the next one has nothing to do with it.
    last = explanation.catch(() => {});
    return explanation;
  };
}

async function explain(question: Question, sources: ExplainSources): Promise<Explanation> {
  const family = familyOf(question.address);
  const explained = sources.families().find((each) => each.family === family);
  if (explained === undefined) {
    const summary = `${family} is not served on this node; the log says why`;
    return { summary, served: false, rules: [], candidates: [] };
  }
  const { clock, machine } = sources;
  const packet = packetOf(question, machine);
  const { isLocal } = machine;
  const list: ListChain = (table, chain) => sources.iptables.list(family, table, chain);
  const path = await explainPath(packet, isLocal, list, clock);
  const conclusion = await conclude({ ...explained, question, packet, path, isLocal, clock });
  const { name, set } = conclusion;
  const service = name && sources.service(name, family);
  const listener = service?.listeners.find((each) => each.set === set);
  const isPicked = conclusion.kind === 'taken' && name !== undefined;
  const nextPick = isPicked
    ? await sources.dataPlane.nextPick(listenerId(name, family, set), packet.source)
    : undefined;
  return {
    summary: summaryOf(conclusion, nextPick, listener),
    served: nextPick !== undefined,
    rules: path.rules,
    ...(service && { service }),
    ...(isPicked && listener && { listener }),
    candidates: name === undefined ? [] : candidatesOf(explained.tracker.candidates(name, set), listener),
    ...(nextPick && { nextPick }),
  };
}

function packetOf({ address, port, protocol, client }: Question, machine: Machine): TracedPacket {
  const family = familyOf(address);
  if (client !== undefined && familyOf(client) !== family) {
    throw new Error(`${client} cannot connect to ${address}: they are of different address families`);
  }
  const common = { address, port, protocol, isFromNat: false };
  if (client !== undefined && !machine.isLocal(client)) {
    return { ...common, source: client, isOwn: false, inInterface: machine.interfaceTowards(client) };
  }
  const { source = address, interfaceName: outInterface } = machine.departureTo(address);
  return { ...common, source: client ?? source, isOwn: true, inInterface: '', outInterface };
}

function summaryOf(
  { kind, text }: Conclusion,
  picked: Endpoint | undefined,
  listener: ListenerView | undefined,
): string {
  if (kind === 'not taken') return text;
  if (picked === undefined) return `${text}, but it has no endpoint at this moment`;
  return `${text}; the next connection goes to ${endpointName(picked)}${troubleOf(picked, listener)}`;
}

/** What a client may meet there. Empty when no connection to that endpoint has failed, as far as is remembered. */
function troubleOf(picked: Endpoint, listener: ListenerView | undefined): string {
  const active = listener?.endpoints.filter(({ state }) => state === 'active') ?? [];
  const failing = active.filter(({ lastError }) => lastError !== undefined);
  const found = failing.find(({ endpoint }) => endpointName(endpoint) === endpointName(picked));
  if (found?.lastError === undefined) return '';
  const told = `connections to it have failed lately: ${found.lastError.err}`;
  if (active.length === 1) return `, its only endpoint; ${told}`;
  const others = failing.length === active.length ? 'and so they have to all others' : 'and other endpoints are there';
  return `; ${told}, ${others}`;
}

function candidatesOf(
  verdicts: readonly EndpointVerdict[],
  listener: ListenerView | undefined,
): readonly CandidateView[] {
  const known = new Map(listener?.endpoints.map((each) => [endpointName(each.endpoint), each]));
  return verdicts.map(({ endpoint, state: { nodeName, zone }, reason }) => {
    const { counters, lastError } = known.get(endpointName(endpoint)) ?? {};
    return {
      endpoint,
      ...(nodeName !== undefined && { nodeName }),
      ...(zone !== undefined && { zone }),
      chosen: reason === undefined,
      ...(reason !== undefined && { reason }),
      ...(counters && { active: counters.active }),
      ...(lastError && { lastError }),
    };
  });
}
