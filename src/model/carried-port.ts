import type { EndpointSetName, ListenerId } from './listener-id.ts';
import type { ServicePort } from './service-port.ts';

/** A Service port and the listeners that carry it, one for each of its endpoint sets. */
export interface CarriedPort {
  readonly servicePort: ServicePort;
  readonly listeners: readonly {
    readonly id: ListenerId;
    readonly set: EndpointSetName;
    /** `undefined` until it is open. */
    readonly localPort: number | undefined;
  }[];
}
