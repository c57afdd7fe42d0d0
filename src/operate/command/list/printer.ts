import type { ConnectionView, NodeView, ServiceView } from '../../../model/view.ts';
import { printable } from '../../../util/text.ts';
import { oneColumnEach } from '../format/text.ts';
import { CONNECTION_HEADER, ConnectionLines } from './connections.ts';
import { headerLines, serviceLines, type TableOptions } from './table.ts';

/** What is listed: Services, or what goes through them. */
export type Listed = 'services' | 'connections';

/** Gives the text of a list piece by piece. */
export interface Printer {
  readonly head: string;
  services(piece: readonly ServiceView[]): string;
  connections(piece: readonly ConnectionView[]): string;
  readonly foot: string;
}

export function tablePrinter({ version, nodeName }: NodeView, listed: Listed, options: TableOptions): Printer {
  const connectionLines = new ConnectionLines();
  const title = `Kube userspace proxy version ${version} (node=${nodeName})`;
  return {
    head: lines(listed === 'services' ? [title, ...headerLines(options)] : [title, CONNECTION_HEADER]),
    services: (piece) => lines(piece.flatMap((service) => serviceLines(service, options))),
    connections: (piece) => lines(connectionLines.of(piece)),
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

/** Whatever they are made of, names included: another program may be at the socket. */
function lines(texts: readonly string[]): string {
  return texts.map((text) => `${oneColumnEach(text)}\n`).join('');
}
