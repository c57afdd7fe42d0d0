import { UsageError } from '../../config/usage-error.ts';
import { familyOf, parseAddress } from '../../model/address.ts';
import type { Endpoint } from '../../model/endpoint.ts';

const ENDPOINT = /^(?:\[(?<v6>[^\]]*)\]|(?<v4>[^:[\]]*)):(?<port>\d{1,5})$/;

/** `IP:PORT`, an IPv6 address in brackets. Throws {@link UsageError} with a sentence. */
export function parseEndpoint(text: string): Endpoint {
  const { v6, v4, port } = ENDPOINT.exec(text)?.groups ?? {};
  const address = parseAddress(v6 ?? v4 ?? '');
  const bracketed = v6 !== undefined;
  if (address === undefined || !isPort(Number(port)) || bracketed !== (familyOf(address) === 'IPv6')) {
    throw new UsageError(
      `${JSON.stringify(text)}: not an address with a port; write it as the lists do, such as 10.244.1.7:8080 or [fd00::7]:8080`,
    );
  }
  return { address, port: Number(port) };
}

function isPort(port: number): boolean {
  return port >= 1 && port <= 65_535;
}
