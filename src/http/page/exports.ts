import { setImmediate } from 'node:timers/promises';
import { COUNTERS } from '../../model/data-plane.ts';
import { endpointName } from '../../model/endpoint.ts';
import type { ServiceView, View } from '../../model/view.ts';
import type { Clock } from '../../util/clock.ts';

/** What is made in one turn of the event loop takes no longer than this and a Service; of one, there may be hundreds of endpoints. */
const SLICE_MS = 5;

/** All that the page knows: `{"node":…,"history":[…],"events":[…],"services":[…]}`. */
export async function* statusJson(view: View, clock: Clock): AsyncGenerator<string> {
  const head = { node: await view.node(), history: view.history(), events: view.events() };
  yield `${JSON.stringify(head).slice(0, -1)},"services":[\n`;
  let separator = '';
  for await (const piece of inPieces(view, clock, (service) => JSON.stringify(service))) {
    yield separator + piece.join(',\n');
    separator = ',\n';
  }
  yield '\n]}\n';
}

const HEAD = [
  'namespace',
  'service',
  'port_name',
  'family',
  'protocol',
  'cluster_ip',
  'port',
  'node_port',
  'state',
  'reason',
  'set',
  'local_port',
  'endpoint',
  'endpoint_state',
  'last_error',
  ...COUNTERS,
] as const;

/**
 * A row for each Service port, and one for each endpoint of each of its listeners (`endpoint` is not empty there), as in the
 * CSV of HAProxy's statistics. A field that nobody counts is empty.
 */
export async function* statusCsv(view: View, clock: Clock): AsyncGenerator<string> {
  yield `# ${HEAD.join(',')}\r\n`;
  for await (const piece of inPieces(view, clock, csvRows)) yield piece.join('');
}

function csvRows(view: ServiceView): string {
  const { namespace, service, portName, family, protocol, clusterIPs, port, nodePort, state, reason } = view;
  const common = [namespace, service, portName, family, protocol, clusterIPs[0], port, nodePort, state, reason];
  return [
    csvRow([...common, '', view.listeners[0]?.localPort, '', '', '', ...COUNTERS.map((name) => view.counters[name])]),
    ...view.listeners.flatMap(({ set, localPort, endpoints }) =>
      endpoints.map(({ endpoint, state: endpointState, lastError, counters }) =>
        csvRow([
          ...common,
          set,
          localPort,
          endpointName(endpoint),
          endpointState,
          lastError?.err,
          ...COUNTERS.map((name) => counters?.[name]),
        ]),
      ),
    ),
  ].join('');
}

function csvRow(cells: readonly (string | number | undefined)[]): string {
  return `${cells.map(csvCell).join(',')}\r\n`;
}

/** A text that a spreadsheet would take for a formula gets a quote in front (OWASP, "CSV Injection"). */
function csvCell(value: string | number | undefined): string {
  if (typeof value === 'number') return String(Math.round(value));
  const text = /^[=+\-@\t\r]/.test(value ?? '') ? `'${value}` : (value ?? '');
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Each Service as text, with a turn of the event loop between two pieces. */
async function* inPieces(
  view: View,
  clock: Clock,
  textOf: (service: ServiceView) => string,
): AsyncGenerator<readonly string[]> {
  let piece: string[] = [];
  let endMs = clock.now() + SLICE_MS;
  for (const service of view.services()) {
    piece.push(textOf(service));
    if (clock.now() < endMs) continue;
    yield piece;
    piece = [];
    await setImmediate();
    endMs = clock.now() + SLICE_MS;
  }
  if (piece.length > 0) yield piece;
}
