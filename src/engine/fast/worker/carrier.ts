import type { Port } from './port.ts';
import type { CountedBackends } from './protocol.ts';

/** This worker's part of a Service port of which another one is the home. Connections need no more. */
export class Carrier {
  readonly port: Port;

  constructor(port: Port) {
    this.port = port;
  }

  update(backends: CountedBackends): void {
    this.port.update(backends);
  }

  /** The Service port closes. */
  close(): void {}
}
