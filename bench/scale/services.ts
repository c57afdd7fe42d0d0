import { TCP, UDP } from '../../test/netns/harness.ts';
import type { PortOptions } from '../../test/netns/manifests.ts';
import { POD_ADDRESSES } from '../../test/netns/topology.ts';

/** A Service as this bench wants it. Names, addresses and ports follow from its number. */
export interface ScaleService {
  readonly name: string;
  readonly number: number;
  readonly clusterIP: string;
  readonly ports: readonly [PortOptions];
  readonly affinitySeconds?: number;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly endpoints: readonly string[];
}

/** Services with these numbers are of all kinds; the others have one TCP port and nothing else. */
const MIXED = { from: 5_000, to: 11_000 };

/** Of the API server's default range, which has a port for every fourth of them. */
const FIRST_NODE_PORT = 30_000;

/** Numbers below this one have addresses of their own. */
export const MAX_NUMBER = 61_440;

export function service(number: number, endpoints: readonly string[] = endpointsOf(number)): ScaleService {
  const clusterIP = `10.96.${16 + (number >> 8)}.${number & 255}`;
  const common = { name: `service-${number}`, number, clusterIP, endpoints };
  switch (number >= MIXED.from && number < MIXED.to ? number % 4 : 0) {
    case 1:
      return { ...common, ports: [{ port: 53, target: UDP['udp-name'], protocol: 'UDP' }] };
    case 2:
      return {
        ...common,
        ports: [{ port: 80, target: TCP.name, nodePort: FIRST_NODE_PORT + ((number - MIXED.from) >> 2) }],
      };
    case 3:
      return { ...common, ports: [{ port: 80, target: TCP.name }], affinitySeconds: 60 };
    default:
      return { ...common, ports: [{ port: 80, target: TCP.name }] };
  }
}

export function isUdp({ ports: [port] }: ScaleService): boolean {
  return port.protocol === 'UDP';
}

/** One of the three pairs that three pods make. */
export function endpointsOf(choice: number): readonly string[] {
  return POD_ADDRESSES.filter((_, index) => index !== choice % POD_ADDRESSES.length);
}
