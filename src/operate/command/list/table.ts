import type { Counters } from '../../../model/data-plane.ts';
import { endpointName } from '../../../model/endpoint.ts';
import type { EndpointView, ListenerView, Rates, ServiceView } from '../../../model/view.ts';
import { shortDuration } from '../format/duration.ts';
import { largeNumber } from '../format/number.ts';
import { oneColumnEach } from '../format/text.ts';
import { isForNodeOnly, virtualAddresses } from './virtual-addresses.ts';

/*
 * The layout of `ipvsadm -L` (its `ipvsadm.c`, print_service_and_dests), with the Service's name at the end of each
 * line of a virtual service, so that what reads ipvsadm's columns reads these. Other than there, no address is ever
 * cut, and the virtual services of one listener stand above one list of real servers: the proxy does not know by which
 * of a Service's addresses a client came, and the same counters several times would add up to too much.
 */

/** ipvsadm's options; without one its plain list. */
export type Layout = 'stats' | 'rate' | undefined;

export interface TableOptions {
  readonly layout: Layout;
  readonly isExact: boolean;
  /** Adds state, local port, worker, and what is wrong. */
  readonly isWide: boolean;
  /** The running program's time, for ages. */
  readonly now: number;
}

/**
 * Room for the longest IPv4 address with the longest flags that Services have. What is longer moves only its Service.
 */
const NAME_COLUMN = 46;
const NUMBERS_COLUMN = 33;

const STATS = ['Conns', 'InPkts', 'OutPkts', 'InBytes', 'OutBytes'];
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
    // Nobody counts rates of endpoints.
    const servers = layout === 'rate' ? [] : listener.endpoints;
    const heads = virtualAddresses(service, listener).map((address) =>
      serviceHead(service, listener, address, options),
    );
    const serverHeads = servers.map(({ endpoint }) => `  -> ${endpointName(endpoint)}`);
    const serverColumn = columnOf(layout === undefined ? serverHeads : [...serverHeads, ...heads], NUMBERS_COLUMN);
    // Statistics stand below each other in both kinds of lines.
    const headColumn = layout === undefined ? columnOf(heads, NAME_COLUMN) : serverColumn;
    return [
      // The counters are those of all listeners together, so they are shown once.
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
  { layout }: Pick<TableOptions, 'layout'>,
): string {
  const head = `${service.protocol}  ${address}`;
  return layout === undefined ? `${head} rr${flagsOf(service, listener)}` : head;
}

function flagsOf({ affinity }: ServiceView, listener: ListenerView): string {
  const persistent = affinity.type === 'ClientIP' ? ` persistent ${affinity.timeoutSeconds}` : '';
  return isForNodeOnly(listener) ? `${persistent} from-node` : persistent;
}

function serviceLine(
  service: ServiceView,
  { listener, head, isCounted }: VirtualService,
  { layout, isExact, isWide }: TableOptions,
): string {
  const { name, state, reason = '' } = service;
  // Where there is no column of flags, they follow the name, so that what has some does not shift it.
  const named = layout === undefined ? name : `${name}${flagsOf(service, listener)}`;
  const [localPort, worker] = [String(listener.localPort ?? '-'), String(listener.worker ?? '-')];
  const tail = isWide ? wideService(named, state, localPort, worker, oneColumnEach(reason)) : named;
  switch (layout) {
    case undefined:
      return `${head} ${tail}`;
    case 'stats':
      return `${head}${statsCells(isCounted ? service.counters : undefined, isExact)} ${tail}`;
    case 'rate':
      return `${head}${rateCells(isCounted ? service.rates : undefined, isExact)} ${tail}`;
  }
}

function serverLine(
  { state, counters, lastError }: EndpointView,
  head: string,
  { layout, isExact, isWide, now }: TableOptions,
): string {
  const error =
    lastError === undefined ? '' : `${oneColumnEach(lastError.err)} (${shortDuration(now - lastError.at)} ago)`;
  const tail = isWide ? wideServer(state, error) : '';
  if (layout === 'stats') return `${head}${statsCells(counters, isExact)} ${tail}`.trimEnd();
  const weight = state === 'active' ? 1 : 0;
  // A proxy's connections are open or gone: it has none that linger, which is what ipvs calls inactive.
  const [active, inactive] = counters === undefined ? ['-', '-'] : [counters.active, 0];
  return `${head} ${'Proxy'.padEnd(7)} ${cell(weight, 6)} ${cell(active, 10)} ${cell(inactive, 10)} ${tail}`.trimEnd();
}

/** Packets are the kernel's business: a proxy sees bytes. */
function statsCells(counters: Readonly<Counters> | undefined, isExact: boolean): string {
  return cells([counters?.connections, undefined, undefined, counters?.receivedBytes, counters?.sentBytes], isExact);
}

function rateCells(rates: Rates | undefined, isExact: boolean): string {
  return cells([rates?.connections, undefined, undefined, rates?.receivedBytes, rates?.sentBytes], isExact);
}

function cells(values: readonly (number | undefined)[], isExact: boolean): string {
  return values.map((value) => largeNumber(value, isExact)).join('');
}

function wideService(name: string, state: string, localPort: string, worker: string, reason: string): string {
  return `${name.padEnd(40)} ${state.padEnd(8)} ${localPort.padEnd(5)} ${worker.padEnd(6)} ${reason}`.trimEnd();
}

function wideServer(state: string, error: string): string {
  return `${state.padEnd(8)} ${error}`.trimEnd();
}

/** As wide as the longest of what stands one below the other. */
function columnOf(texts: readonly string[], least: number): number {
  return texts.reduce((widest, { length }) => Math.max(widest, length), least);
}

function cell(value: number | string, width: number): string {
  return String(value).padEnd(width);
}
