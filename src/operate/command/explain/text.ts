import { endpointName } from '../../../model/endpoint.ts';
import type { CandidateView, Explanation, ListenerView, RuleView, ServiceView } from '../../../model/view.ts';
import { shortDuration } from '../format/duration.ts';
import { oneColumnEach } from '../format/text.ts';
import { wrapped } from '../format/wrap.ts';

const WIDTH = 80;

/** For people, in 80 columns, but where a single word is longer. `now`: milliseconds since 1970, for ages. */
export function explanationText(explanation: Explanation, now: number): string {
  const { summary, rules, service, listener, candidates } = explanation;
  const next = explanation.nextPick && endpointName(explanation.nextPick);
  const parts = [
    wrapped(`${capitalized(oneColumnEach(summary))}.`, WIDTH),
    part('Rules that match, in order', rules.flatMap(ruleLines)),
    part('Service', service === undefined ? [] : serviceLines(service)),
    part('Listener', listener === undefined ? [] : [listenerLine(listener)]),
    part(`Endpoints (${candidates.length})`, candidateLines(candidates, next, now)),
  ];
  return `${parts
    .filter((lines) => lines.length > 0)
    .map((lines) => lines.map(oneColumnEach).join('\n'))
    .join('\n\n')}\n`;
}

/** A heading and what is below it; nothing without that. */
function part(heading: string, lines: readonly string[]): readonly string[] {
  return lines.length === 0 ? [] : [heading, ...lines.map((line) => `  ${line}`)];
}

const UNBROKEN = '\u00a0';

/** An option stays on a line with what it is given. */
function ruleLines({ table, chain, rule }: RuleView): readonly string[] {
  const text = oneColumnEach(rule).replace(/(?<= |^)(-[\w-]+) (?![-!"])/g, `$1${UNBROKEN}`);
  const lines = indented(text, '  ').map((line) => line.replaceAll(UNBROKEN, ' '));
  return [`${table} ${oneColumnEach(chain)}`, ...lines];
}

function serviceLines(service: ServiceView): readonly string[] {
  const { name, protocol, port, nodePort, affinity, state, reason } = service;
  const addresses = [...service.clusterIPs, ...service.externalIPs, ...service.loadBalancerIPs];
  const facts = [
    ...addresses.map((address) => `${endpointName({ address, port })}/${protocol}`),
    ...(nodePort === 0 ? [] : [`NodePort ${nodePort}`]),
    ...(affinity.type === 'ClientIP' ? [`affinity of ${affinity.timeoutSeconds} s`] : []),
    `state ${state}${reason === undefined ? '' : `: ${oneColumnEach(reason)}`}`,
  ];
  return [name, ...indented(facts.join(', '), '  ')];
}

const SETS: Readonly<Record<ListenerView['set'], string>> = { own: '', local: ', endpoints of this node only' };

function listenerLine({ set, localPort, worker }: ListenerView): string {
  return `local port ${localPort ?? 'not open yet'}${worker === undefined ? '' : `, worker ${worker}`}${SETS[set]}`;
}

function candidateLines(
  candidates: readonly CandidateView[],
  next: string | undefined,
  now: number,
): readonly string[] {
  const column = Math.max(...candidates.map(({ endpoint }) => endpointName(endpoint).length)) + 2;
  return candidates.flatMap((candidate) => {
    const name = endpointName(candidate.endpoint);
    const [first = '', ...others] = indented(candidateText(candidate, name === next, now), ' '.repeat(column));
    return [`${name.padEnd(column)}${first.trimStart()}`, ...others];
  });
}

function candidateText(candidate: CandidateView, isNext: boolean, now: number): string {
  const { chosen, reason, nodeName, zone, active, lastError } = candidate;
  const state = chosen ? 'gets new connections' : `left out: ${reason ?? 'for no known reason'}`;
  const facts = [
    isNext ? 'next' : state,
    ...(active === undefined ? [] : [`${active} open`]),
    ...(nodeName === undefined ? [] : [`node ${nodeName}`]),
    ...(zone === undefined ? [] : [`zone ${zone}`]),
    ...(lastError === undefined ? [] : [`last failure ${shortDuration(now - lastError.at)} ago: ${lastError.err}`]),
  ];
  return oneColumnEach(facts.join(', '));
}

/** Wrapped such that it fits below a heading's two columns. */
function indented(text: string, indent: string): readonly string[] {
  return wrapped(text, WIDTH - 2 - indent.length).map((line) => `${indent}${line}`);
}

function capitalized(text: string): string {
  // Names of Services are as they are.
  return /^\S+\//.test(text) ? text : `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
}
