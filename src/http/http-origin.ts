import type { IncomingHttpHeaders } from 'node:http';
import { parseAddress, unmapped } from '../model/address.ts';

/** As in "node-1:10249" and "[::1]:10249". */
const HOST = /^(?:\[([^\]]*)\]|([^:]*))(?::\d*)?$/;

/**
 * Why nobody should be answered who asks like this: it is a web site that makes a browser ask. `undefined`: anybody else.
 * `address`: of ours, that the connection came to.
 */
export function refusalOf(headers: IncomingHttpHeaders, address: string | undefined): string | undefined {
  if (isLoopback(address) && !isOwnHost(headers.host)) {
    return 'On loopback this answers to "localhost" and IP addresses only: under any other name, web sites could read it.';
  }
  return isOfOtherSite(headers) ? 'Other web sites may only lead here, not ask for anything themselves.' : undefined;
}

function isLoopback(address = ''): boolean {
  return address === '::1' || unmapped(address).startsWith('127.');
}

/**
 * A name that somebody else rules may lead to 127.0.0.1 today and to his own server a moment ago, so to a browser both
 * are the same site ("DNS rebinding"). Those who do not say for which host they ask are no browsers.
 */
function isOwnHost(host: string | undefined): boolean {
  if (host === undefined) return true;
  const [, bracketed, name = bracketed ?? ''] = HOST.exec(host) ?? [];
  return name.toLowerCase() === 'localhost' || parseAddress(name) !== undefined;
}

/**
 * What browsers say of who asks (Fetch Metadata). The other site could not read the answer, but keep those who can from
 * having one. A link that somebody follows is no harm.
 */
function isOfOtherSite({ 'sec-fetch-site': site, 'sec-fetch-dest': destination }: IncomingHttpHeaders): boolean {
  return (site === 'cross-site' || site === 'same-site') && destination !== 'document';
}
