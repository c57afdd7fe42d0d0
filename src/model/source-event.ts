import type { EndpointSlice, Endpoints } from './endpoint.ts';
import type { Service, ServiceKey } from './service.ts';

/** One object's new state; `undefined` means it is gone. The last event for a key wins. */
export type SourceEvent =
  | { readonly kind: 'Service'; readonly key: ServiceKey; readonly value: Service | undefined }
  | { readonly kind: 'Endpoints'; readonly key: ServiceKey; readonly value: Endpoints | undefined }
  | { readonly kind: 'EndpointSlice'; readonly key: ServiceKey; readonly value: EndpointSlice | undefined };
