import { UsageError } from '../config/usage-error.ts';
import { type Address, familyOf, parseAddress } from '../model/address.ts';
import { boundText } from '../model/data-plane.ts';
import { endpointName } from '../model/endpoint.ts';
import { serversText } from '../model/source.ts';
import type {
  CandidateView,
  ConnectTime,
  Explanation,
  ListenerView,
  NodeView,
  Question,
  SeenAddress,
  ServiceView,
} from '../model/view.ts';
import type { Control } from '../operate/control/protocol.ts';
import { formatDuration } from '../util/duration.ts';
import { counted, printable } from '../util/text.ts';
import { command } from './command.ts';
import { capitalized, printableJson, shortDuration } from './format.ts';
import { isSelected, selectionOf } from './list/selection.ts';
import { noMatch } from './near.ts';
import { askOne, CONTROL_SOCKET, JSON_OUTPUT, parseEndpoint, servicesOf, warnOfCaveats } from './shared.ts';

export const EXPLAIN = command({
  name: 'explain',
  summary: 'say what becomes of a connection: which rules match, whose listener gets it, and which endpoint is next',
  argument: 'IP:PORT[/udp]|NAMESPACE/SERVICE[:PORT]',
  completes: ['services'],
  options: {
    from: { type: 'string', nargs: 1, describe: 'address of the client; when not given, this node itself' },
    ...JSON_OUTPUT,
    ...CONTROL_SOCKET,
  },
  examples: [
    ['explain 10.96.0.1:443', 'a cluster IP; exits with 1 if no endpoint would get the connection, or none answers'],
    ['explain 10.96.0.10:53/udp --from 10.244.1.7', 'as it is for a client that is a pod'],
    ['explain default/web:http', 'the same by name'],
    ['explain 192.168.50.10:30080 --from 198.51.100.1', 'a NodePort, from outside'],
  ],
  /** 0 when an endpoint would get the connection, and is expected to answer. */
  run: async (given, terminal, { clock, connect }) => {
    const client = given.from === undefined ? undefined : parseAddress(given.from);
    if (given.from !== undefined && client === undefined) {
      throw new UsageError(`--from ${JSON.stringify(given.from)}: must be an IP address`);
    }
    const control = connect(given['control-socket']);
    const destination = await destinationOf(given.argument, client, control);
    if (client !== undefined && familyOf(client) !== familyOf(destination.address)) {
      throw new UsageError(`--from ${client}: not of the address family of ${destination.address}`);
    }
    const explanation = await askOne(control, 'explain', { ...destination, ...(client !== undefined && { client }) });
    const isJson = given.output === 'json';
    // The proxy's clock is the same, for both are on one machine.
    terminal.out(isJson ? printableJson(explanation) : explanationText(explanation, clock.wallNow()));
    const node = await askOne(control, 'node', {});
    if (!isJson) terminal.out(serversPart(node));
    warnOfCaveats(node, terminal);
    return explanation.served ? 0 : 1;
  },
});

type Destination = Pick<Question, 'address' | 'port' | 'protocol'>;

const NAME = /^[^/:[\]]+\/[^/:]+(?::[^/:]+)?$/;
const WITH_PROTOCOL = /^(?<endpoint>[^/]*)(?:\/(?<protocol>tcp|udp))?$/i;

/** Of an address or of a Service's name. Rejects with a sentence. */
async function destinationOf(text: string, from: Address | undefined, control: Control): Promise<Destination> {
  const { endpoint, protocol = 'tcp' } = WITH_PROTOCOL.exec(text)?.groups ?? {};
  if (endpoint?.includes(':')) {
    const { address, port } = parseEndpoint(endpoint);
    return { address: onThisNode(address, from), port, protocol: protocol.toLowerCase() === 'udp' ? 'UDP' : 'TCP' };
  }
  if (NAME.test(text)) return await clusterIPOf(text, from, control);
  throw new UsageError(
    `${JSON.stringify(text)}: write an address such as 10.96.0.1:80, 10.96.0.10:53/udp or [fd00::1]:80, ` +
      'or a Service such as default/web or default/web:http',
  );
}

/** Lists show NodePorts at these addresses. Programs of the node that connect to them get to loopback. */
const OF_ANY: Readonly<Record<string, string>> = { '0.0.0.0': '127.0.0.1', '::': '::1' };

function onThisNode(address: Address, from: Address | undefined): Address {
  const loopback = parseAddress(OF_ANY[address] ?? '');
  if (loopback !== undefined && from !== undefined) {
    throw new UsageError(`${address} is every address of this node: name the one that ${from} connects to`);
  }
  return loopback ?? address;
}

async function clusterIPOf(name: string, from: Address | undefined, control: Control): Promise<Destination> {
  const selection = selectionOf({ argument: name });
  const found: ServiceView[] = [];
  for await (const service of servicesOf(control, { ...selection.filter, summary: true })) {
    if (isSelected(selection, service)) found.push(service);
  }
  const family = from === undefined ? found[0]?.family : familyOf(from);
  const candidates = found.filter((service) => service.family === family);
  const [service, another] = candidates;
  if (service === undefined) {
    if (found.length === 0) throw new UsageError(await noMatch(selection, control));
    throw new UsageError(`this node does not serve ${JSON.stringify(name)} over ${family}`);
  }
  if (another !== undefined) {
    const names = candidates.map((each) => each.name).join(', ');
    throw new UsageError(`${JSON.stringify(name)} has several ports; name one of them: ${names}`);
  }
  const { port, protocol, nodePort, clusterIPs, externalIPs, loadBalancerIPs, reason } = service;
  const [address] = [...clusterIPs, ...externalIPs, ...loadBalancerIPs];
  if (address === undefined && nodePort === 0) {
    throw new UsageError(`${JSON.stringify(name)} is served nowhere${reason === undefined ? '' : `: ${reason}`}`);
  }
  if (address === undefined) {
    throw new UsageError(
      `${JSON.stringify(name)} has no cluster IP; name an address of this node: ADDRESS:${nodePort}`,
    );
  }
  return { address, port, protocol };
}

/** For people. `now`: milliseconds since 1970, for ages. */
function explanationText(
  { summary, caveat, rules, service, listener, candidates, nextPick, endpointSees, proxyProtocol }: Explanation,
  now: number,
): string {
  const next = nextPick && endpointName(nextPick);
  // Names of Services are as they are.
  const sentence = /^\S+\//.test(summary) ? summary : capitalized(summary);
  const parts: (readonly string[])[] = [
    [
      `${sentence}.`,
      ...(endpointSees === undefined ? [] : [seenLine(endpointSees)]),
      ...(proxyProtocol === undefined
        ? []
        : [`A PROXY protocol header (${proxyProtocol}) tells it who the client is.`]),
      ...(caveat === undefined ? [] : [caveat]),
    ],
    part(
      'Rules that match, in order',
      rules.map(({ line }) => line),
    ),
    part('Service', service === undefined ? [] : [serviceLine(service)]),
    part('Listener', listener === undefined ? [] : [listenerLine(listener)]),
    part(
      `Endpoints (${candidates.length})`,
      candidates.map((each) => candidateLine(each, next, now)),
    ),
  ];
  const lines = parts.filter(({ length }) => length > 0).map((each) => each.map(printable).join('\n'));
  return `${lines.join('\n\n')}\n`;
}

/** Which API server says what is served here. */
function serversPart({ api, now }: NodeView): string {
  if (api === undefined || api.servers.length === 0) return '';
  const heading = api.servers.length === 1 ? 'API server' : 'API servers';
  const lines = part(heading, serversText(api, now, shortDuration)).map(printable);
  return `\n${lines.join('\n')}\n`;
}

function seenLine(seen: SeenAddress): string {
  if (seen.address === 'client') return "The endpoint sees the client's address.";
  return `The endpoint sees this node's address, because ${seen.reason}.`;
}

/** A heading and what is below it; nothing without that. */
function part(heading: string, lines: readonly string[]): readonly string[] {
  return lines.length === 0 ? [] : [heading, ...lines.map((line) => `  ${line}`)];
}

function serviceLine(service: ServiceView): string {
  const { name, protocol, port, nodePort, scheduler, slowStartMs, waitMs, maxConnections, affinity, state, reason } =
    service;
  const addresses = [...service.clusterIPs, ...service.externalIPs, ...service.loadBalancerIPs];
  const facts = [
    ...addresses.map((address) => `${endpointName({ address, port })}/${protocol}`),
    ...(nodePort === 0 ? [] : [`NodePort ${nodePort}`]),
    `scheduler ${scheduler}`,
    ...(slowStartMs === undefined ? [] : [`slow start ${formatDuration(slowStartMs)}`]),
    // The reason of that state says so.
    ...(waitMs === undefined || state === 'idle'
      ? []
      : [`clients wait up to ${formatDuration(waitMs)} for an endpoint`]),
    ...(maxConnections === undefined ? [] : [`at most ${counted(maxConnections, 'connection')} of an endpoint`]),
    ...(affinity.type === 'ClientIP' ? [`affinity of ${affinity.timeoutSeconds} s`] : []),
    ...(service.connectTime === undefined ? [] : [connectText(service.connectTime)]),
    `state ${state}${reason === undefined ? '' : `: ${reason}`}`,
  ];
  return `${name}  ${facts.join(', ')}`;
}

/** "connects in ≤0.5ms (p99 ≤16ms)" */
function connectText({ p50, p99 }: ConnectTime): string {
  return `connects in ${boundText(p50)} (p99 ${boundText(p99)})`;
}

function listenerLine({ set, localPort, worker }: ListenerView): string {
  const thread = worker === undefined ? '' : `, worker ${worker}`;
  return `local port ${localPort ?? 'not open yet'}${thread}${set === 'local' ? ', endpoints of this node only' : ''}`;
}

function candidateLine(candidate: CandidateView, next: string | undefined, now: number): string {
  const { endpoint, chosen, weight, reason, nodeName, zone, active, connectTime, ejected, lastError } = candidate;
  const name = endpointName(endpoint);
  const state = chosen ? 'gets new connections' : `left out: ${reason ?? 'for no known reason'}`;
  const facts = [
    name === next ? 'next' : state,
    ...(ejected ? ['ejected: gets them last'] : []),
    ...(weight === 1 ? [] : [`weight ${weight}`]),
    ...(active === undefined ? [] : [`${active} open`]),
    ...(connectTime === undefined ? [] : [connectText(connectTime)]),
    ...(nodeName === undefined ? [] : [`node ${nodeName}`]),
    ...(zone === undefined ? [] : [`zone ${zone}`]),
    ...(lastError === undefined ? [] : [`last failure ${shortDuration(now - lastError.at)} ago: ${lastError.err}`]),
  ];
  return `${name}  ${facts.join(', ')}`;
}
