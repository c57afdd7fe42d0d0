import { setImmediate } from 'node:timers/promises';
import { COUNTERS } from '../../model/data-plane.ts';
import { endpointName } from '../../model/endpoint.ts';
import type { ServiceView, View } from '../../model/view.ts';
import { inPieces } from '../../operate/view/view.ts';
import type { Clock } from '../../util/clock.ts';

/* /status.json and /status.csv: everything that the page knows, in parts. */

/** `{"node":…,"history":[…],"events":[…],"services":[…]}` */
export async function* statusJson(view: View, clock: Clock): AsyncGenerator<string> {
  const head = { node: await view.node(), history: view.history(), events: view.events() };
  yield `${JSON.stringify(head).slice(0, -1)},"services":[\n`;
  let separator = '';
  for (const piece of inPieces(view.services(), clock, (service) => JSON.stringify(service))) {
    yield separator + piece.join(',\n');
    separator = ',\n';
    await setImmediate();
  }
  yield '\n]}\n';
}

const SERVICE_COLUMNS = 'namespace,service,port_name,family,protocol,cluster_ip,port,node_port,state,reason';
const ENDPOINT_COLUMNS = 'set,local_port,endpoint,endpoint_state,last_error';

/**
 * A row for each Service port, and one for each endpoint of each of its listeners (`endpoint` is not empty there), like
 * the CSV of HAProxy's statistics. A counter that the engine does not keep is empty.
 */
export async function* statusCsv(view: View, clock: Clock): AsyncGenerator<string> {
  yield `# ${SERVICE_COLUMNS},${ENDPOINT_COLUMNS},${COUNTERS.join(',')},scheduler,weight\r\n`;
  for (const piece of inPieces(view.services(), clock, csvRows)) {
    yield piece.join('');
    await setImmediate();
  }
}

function csvRows(view: ServiceView): string {
  const { namespace, service, portName, family, protocol, clusterIPs, port, nodePort, state, reason } = view;
  const row = (own: readonly Cell[], counters: ServiceView['counters'] | undefined, weight?: number) =>
    [
      ...[namespace, service, portName, family, protocol, clusterIPs[0], port, nodePort, state, reason],
      ...own,
      ...COUNTERS.map((name) => counters?.[name]),
      view.scheduler,
      weight,
    ]
      .map(csvCell)
      .join(',');
  const rows = [
    row(['', view.listeners[0]?.localPort, '', '', ''], view.counters),
    ...view.listeners.flatMap(({ set, localPort, endpoints }) =>
      endpoints.map(({ endpoint, state: endpointState, weight, lastError, counters }) =>
        row([set, localPort, endpointName(endpoint), endpointState, lastError?.err], counters, weight),
      ),
    ),
  ];
  return rows.map((each) => `${each}\r\n`).join('');
}

type Cell = string | number | undefined;

/** A text that a spreadsheet would take for a formula gets a quote in front (OWASP, "CSV Injection"). */
function csvCell(value: Cell): string {
  if (typeof value === 'number') return String(Math.round(value));
  const text = /^[=+\-@\t\r]/.test(value ?? '') ? `'${value}` : (value ?? '');
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
