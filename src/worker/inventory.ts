import type { ConnectionRecord, FlowRecord } from './hand-over.ts';
import type { PortId } from './protocol.ts';

/** Collects the connections and flows of a worker by Service port. */
export class Inventory {
  readonly #connections = new Map<PortId, ConnectionRecord[]>();
  readonly #flows = new Map<PortId, FlowRecord[]>();

  connection(port: PortId, record: ConnectionRecord): void {
    append(this.#connections, port, record);
  }

  flow(port: PortId, record: FlowRecord): void {
    append(this.#flows, port, record);
  }

  flowsOf(port: PortId): readonly FlowRecord[] {
    return this.#flows.get(port) ?? [];
  }

  connectionsOf(port: PortId): readonly ConnectionRecord[] {
    return this.#connections.get(port) ?? [];
  }

  /** The connections of Service ports that are not open any more. */
  orphans(isOpen: (port: PortId) => boolean): readonly ConnectionRecord[] {
    return [...this.#connections].flatMap(([port, connections]) => (isOpen(port) ? [] : connections));
  }
}

function append<Each>(lists: Map<PortId, Each[]>, port: PortId, each: Each): void {
  const list = lists.get(port);
  if (list === undefined) lists.set(port, [each]);
  else list.push(each);
}
