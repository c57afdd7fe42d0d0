import type { IncomingHttpHeaders } from 'node:http';
import { parseAddress, unmapped } from '../model/address.ts';

/** As in "node-1:10249" and "[::1]:10249". */
const HOST = /^(?:\[([^\]]*)\]|([^:]*))(?::\d*)?$/;

/**
 * Why a request is refused: a web site makes an operator's browser send it. `undefined` for every other request.
 * `address`: our own, to which the connection came.
 */
export function refusalOf(headers: IncomingHttpHeaders, address = ''): string | undefined {
  if (isLoopback(address) && !isOwnHost(headers.host)) {
    return 'On loopback this answers to "localhost" and IP addresses only: under any other name, web sites could read it.';
  }
  return isFromOtherSite(headers) ? 'Other web sites may only link here, not request anything themselves.' : undefined;
}

export function isLoopback(address: string): boolean {
  return address === '::1' || unmapped(address).startsWith('127.');
}

/**
 * DNS rebinding: a name that an attacker controls resolves to his server first and to 127.0.0.1 later. The browser
 * takes both for one site and lets his page read our answer. A client that sends no Host header is not a browser.
 */
function isOwnHost(host: string | undefined): boolean {
  if (host === undefined) return true;
  const [, bracketed, name = bracketed ?? ''] = HOST.exec(host) ?? [];
  return name.toLowerCase() === 'localhost' || parseAddress(name) !== undefined;
}

/**
 * Fetch Metadata, which browsers send about the requesting site. The other site could not read the answer, but making
 * one costs time. Following a link is harmless and is allowed.
 */
function isFromOtherSite({ 'sec-fetch-site': site, 'sec-fetch-dest': destination }: IncomingHttpHeaders): boolean {
  return (site === 'cross-site' || site === 'same-site') && destination !== 'document';
}
