import { WILDCARDS } from '../../model/address.ts';
import { boundText, type ConnectionState, type Counters } from '../../model/data-plane.ts';
import { endpointName } from '../../model/endpoint.ts';
import type {
  ConnectionView,
  ConnectTime,
  EndpointView,
  ListenerView,
  NodeView,
  Rates,
  ServiceView,
} from '../../model/view.ts';
import { printable } from '../../util/text.ts';
import { largeNumber, minutesAndSeconds, oneColumnEach, shortDuration } from '../format.ts';

/*
 * The layout of `ipvsadm -L` (its `ipvsadm.c`, print_service_and_dests), with the Service's name at the end of each
 * line of a virtual service, and states that are not ok or active, so that programs that read ipvsadm's columns can
 * read these. There are two differences. Addresses are never cut. And the virtual services of one listener stand above
 * one list of real servers: the proxy does not know which address of a Service a client used, and repeated counters
 * would add up to too much.
 */

/** ipvsadm's options; without one its plain list. */
export type Layout = 'stats' | 'rate' | undefined;

export interface TableOptions {
  readonly layout: Layout;
  readonly isExact: boolean;
  /** Adds state, local port, worker, and what is wrong. */
  readonly isWide: boolean;
  /** The time of the running program, to compute ages. */
  readonly now: number;
}

/**
 * Room for the longest IPv4 address with the longest flags of Services. A longer one moves only its own Service.
 */
const NAME_COLUMN = 46;
const NUMBERS_COLUMN = 33;

/** ipvsadm's, and the time to connect of the last minutes. */
const STATS = ['Conns', 'InPkts', 'OutPkts', 'InBytes', 'OutBytes', 'ConnP50', 'ConnP99'];
const RATE = ['CPS', 'InPPS', 'OutPPS', 'InBPS', 'OutBPS'];

export function headerLines({ layout, isWide }: Pick<TableOptions, 'layout' | 'isWide'>): string[] {
  const serviceTail = isWide ? wideService('Service', 'State', 'Port', 'Worker', 'Reason') : 'Service';
  const serverTail = isWide ? wideServer('State', 'LastError') : '';
  if (layout === undefined) {
    return [
      `${'Prot LocalAddress:Port Scheduler Flags'.padEnd(NAME_COLUMN)} ${serviceTail}`,
      `${'  -> RemoteAddress:Port'.padEnd(NUMBERS_COLUMN)} Forward Weight ActiveConn InActConn ${serverTail}`.trimEnd(),
    ];
  }
  const numbers = (layout === 'stats' ? STATS : RATE).map((name) => ` ${name.padStart(8)}`).join('');
  const services = `${'Prot LocalAddress:Port'.padEnd(NUMBERS_COLUMN)}${numbers} ${serviceTail}`;
  if (layout === 'rate') return [services];
  return [services, `${'  -> RemoteAddress:Port'.padEnd(NUMBERS_COLUMN + numbers.length)} ${serverTail}`.trimEnd()];
}

export function serviceLines(service: ServiceView, options: TableOptions): string[] {
  return service.listeners.flatMap((listener, index) => {
    const { layout } = options;
    // Rates of endpoints are not counted.
    const servers = layout === 'rate' ? [] : listener.endpoints;
    const heads = virtualAddresses(service, listener).map((address) =>
      serviceHead(service, listener, address, options),
    );
    const serverHeads = servers.map(({ endpoint }) => `  -> ${endpointName(endpoint)}`);
    const serverColumn = columnOf(layout === undefined ? serverHeads : [...serverHeads, ...heads], NUMBERS_COLUMN);
    // Statistics are aligned in both kinds of lines.
    const headColumn = layout === undefined ? columnOf(heads, NAME_COLUMN) : serverColumn;
    return [
      // The counters are sums over all listeners, so they are shown once.
      ...heads.map((head, line) =>
        serviceLine(
          service,
          { listener, head: head.padEnd(headColumn), isCounted: index === 0 && line === 0 },
          options,
        ),
      ),
      ...servers.map((server, line) => serverLine(server, (serverHeads[line] ?? '').padEnd(serverColumn), options)),
    ];
  });
}

interface VirtualService {
  readonly listener: ListenerView;
  readonly head: string;
  readonly isCounted: boolean;
}

function serviceHead(
  service: ServiceView,
  listener: ListenerView,
  address: string,
  { layout, isWide }: Pick<TableOptions, 'layout' | 'isWide'>,
): string {
  const head = `${service.protocol}  ${address}`;
  return layout === undefined ? `${head} ${service.scheduler}${flagsOf(service, listener, isWide)}` : head;
}

/** A state that is not ok is a flag, too, where it has no column. */
function flagsOf({ affinity, state }: ServiceView, listener: ListenerView, isWide: boolean): string {
  const persistent = affinity.type === 'ClientIP' ? ` persistent ${affinity.timeoutSeconds}` : '';
  const fromNode = isForNodeOnly(listener) ? ' from-node' : '';
  return `${persistent}${fromNode}${isWide || state === 'ok' ? '' : ` ${state}`}`;
}

function serviceLine(
  service: ServiceView,
  { listener, head, isCounted }: VirtualService,
  { layout, isExact, isWide }: TableOptions,
): string {
  const { name, state, reason = '' } = service;
  // Without a column of their own, flags follow the name, so that they do not shift it.
  const named = layout === undefined ? name : `${name}${flagsOf(service, listener, isWide)}`;
  const [localPort, worker] = [String(listener.localPort ?? '-'), String(listener.worker ?? '-')];
  const tail = isWide ? wideService(named, state, localPort, worker, oneColumnEach(reason)) : named;
  if (layout === undefined) return `${head} ${tail}`;
  const carried = layout === 'stats' ? service.counters : service.rates;
  const times = layout === 'stats' ? timeCells(isCounted ? service.connectTime : undefined) : '';
  return `${head}${carriedCells(isCounted ? carried : undefined, isExact)}${times} ${tail}`;
}

function serverLine(
  { state, weight, counters, connectTime, lastError }: EndpointView,
  head: string,
  { layout, isExact, isWide, now }: TableOptions,
): string {
  const error =
    lastError === undefined ? '' : `${oneColumnEach(lastError.err)} (${shortDuration(now - lastError.at)} ago)`;
  const tail = isWide ? wideServer(state, error) : state === 'active' ? '' : state;
  if (layout === 'stats') return `${head}${carriedCells(counters, isExact)}${timeCells(connectTime)} ${tail}`.trimEnd();
  // Connections of a proxy are open or gone. None linger, which ipvs calls inactive.
  const [active, inactive] = counters === undefined ? ['-', '-'] : [counters.active, 0];
  return `${head} ${'Proxy'.padEnd(7)} ${cell(weight, 6)} ${cell(active, 10)} ${cell(inactive, 10)} ${tail}`.trimEnd();
}

/** A proxy counts bytes; packets are counted by the kernel. */
function carriedCells(carried: Readonly<Counters> | Rates | undefined, isExact: boolean): string {
  const values = [carried?.connections, undefined, undefined, carried?.receivedBytes, carried?.sentBytes];
  return values.map((value) => largeNumber(value, isExact)).join('');
}

function timeCells(time: ConnectTime | undefined): string {
  const cells = time === undefined ? ['-', '-'] : [boundText(time.p50), boundText(time.p99)];
  return cells.map((each) => ` ${each.padStart(8)}`).join('');
}

function wideService(name: string, state: string, localPort: string, worker: string, reason: string): string {
  return `${name.padEnd(40)} ${state.padEnd(8)} ${localPort.padEnd(5)} ${worker.padEnd(6)} ${reason}`.trimEnd();
}

function wideServer(state: string, error: string): string {
  return `${state.padEnd(8)} ${error}`.trimEnd();
}

/** The width of a column of these texts. */
function columnOf(texts: readonly string[], least: number): number {
  return texts.reduce((widest, { length }) => Math.max(widest, length), least);
}

function cell(value: number | string, width: number): string {
  return String(value).padEnd(width);
}

/** Where clients of one listener connect to, each with its port: what ipvs would call its virtual services. */
function virtualAddresses(service: ServiceView, listener: Pick<ListenerView, 'traffic'>): string[] {
  const { clusterIPs, externalIPs, loadBalancerIPs, port, nodePort, family } = service;
  const { traffic } = listener;
  const internal = traffic.includes('internal') ? clusterIPs : [];
  // Addresses that lead to two listeners are shown at the one for clients outside, unless the other is for the node
  // only.
  const isExternal = traffic.includes('external') || isForNodeOnly(listener);
  // As `ss` shows what a NodePort listens on.
  const nodePorts = isExternal && nodePort !== 0 ? [{ address: WILDCARDS[family], port: nodePort }] : [];
  const external = isExternal ? [...externalIPs, ...loadBalancerIPs] : [];
  const withPort = (address: string) => ({ address, port });
  const all = [...internal.map(withPort), ...nodePorts, ...external.map(withPort)].map(endpointName);
  // Its real servers must not seem to belong to the line above.
  return all.length > 0 ? all : ['-'];
}

/** Its only clients are the node's own programs. */
function isForNodeOnly({ traffic }: Pick<ListenerView, 'traffic'>): boolean {
  return traffic.every((each) => each === 'node');
}

/*
 * The layout of `ipvsadm -L -c` (its `ipvsadm.c`, print_conn), with the Service's name at the end. There is room for
 * the longest IPv4 address and port. After the first longer one, all lines are as wide.
 */

/** ipvs' words, as `ipvsadm` shows them; nobody waits there, so WAITING is ours. */
const STATES: Readonly<Record<ConnectionState, string>> = {
  waiting: 'WAITING',
  dialling: 'SYN_SENT',
  established: 'ESTABLISHED',
  'half-closed': 'FIN_WAIT',
  flow: 'UDP',
};

const ADDRESS_COLUMN = 21;

interface Row {
  readonly start: string;
  readonly addresses: readonly string[];
  readonly name: string;
}

const CONNECTION_HEADER = lineOf(
  { start: startOf('pro', 'expire', 'state'), addresses: ['source', 'virtual', 'destination'], name: 'service' },
  ADDRESS_COLUMN,
);

function rowOf({ name, protocol, client, virtual, endpoint, state, expiresMs }: ConnectionView): Row {
  return {
    start: startOf(protocol, expiresMs === undefined ? '-' : minutesAndSeconds(expiresMs), STATES[state]),
    addresses: [endpointName(client), endpointName(virtual), endpoint === undefined ? '-' : endpointName(endpoint)],
    name,
  };
}

function startOf(protocol: string, expire: string, state: string): string {
  return `${protocol.padEnd(3)} ${expire.padEnd(6)} ${state.padEnd(11)}`;
}

function lineOf({ start, addresses, name }: Row, addressColumn: number): string {
  return [start, ...addresses.map((address) => address.padEnd(addressColumn)), name].join(' ');
}

/** What is listed: Services, or what goes through them. */
type Listed = 'services' | 'connections';

/** Gives the text of a list piece by piece. */
export interface Printer {
  readonly head: string;
  services(piece: readonly ServiceView[]): string;
  connections(piece: readonly ConnectionView[]): string;
  readonly foot: string;
}

export function tablePrinter({ version, nodeName }: NodeView, listed: Listed, options: TableOptions): Printer {
  let addressColumn = ADDRESS_COLUMN;
  const title = `Kube userspace proxy version ${version} (node=${nodeName})`;
  return {
    head: lines(listed === 'services' ? [title, ...headerLines(options)] : [title, CONNECTION_HEADER]),
    services: (piece) => lines(piece.flatMap((service) => serviceLines(service, options))),
    connections: (piece) => {
      const rows = piece.map(rowOf);
      for (const { addresses } of rows) addressColumn = columnOf(addresses, addressColumn);
      return lines(rows.map((row) => lineOf(row, addressColumn)));
    },
    foot: '',
  };
}

/** One document with one element a line: `{"version": …, "node": …, "services": [ … ]}`. */
export function jsonPrinter({ version, nodeName }: NodeView, listed: Listed): Printer {
  let separator = '\n';
  const elements = (piece: readonly (ServiceView | ConnectionView)[]): string => {
    const text = piece.map((each) => printable(JSON.stringify(each))).join(',\n');
    if (text === '') return '';
    const separated = `${separator}${text}`;
    separator = ',\n';
    return separated;
  };
  return {
    head: printable(`{"version":${JSON.stringify(version)},"node":${JSON.stringify(nodeName)},"${listed}":[`),
    services: elements,
    connections: elements,
    foot: '\n]}\n',
  };
}

/** Without control characters, also in names: another program may serve the socket. */
function lines(texts: readonly string[]): string {
  return texts.map((text) => `${oneColumnEach(text)}\n`).join('');
}
