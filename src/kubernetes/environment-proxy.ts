import { domainToASCII } from 'node:url';
import { type Address, cidrContains, parseAddress, parseCidr } from '../model/address.ts';

/**
 * The URL of the HTTP proxy that the environment names for this server. The rules are Go's
 * (`golang.org/x/net/http/httpproxy`), because nodes are set up for programs in Go. Node's own know no CIDR and send
 * loopback through the proxy. A SOCKS proxy is ignored: Node's agent cannot use one.
 */
export function environmentProxy(server: URL, env: NodeJS.ProcessEnv): string | undefined {
  const name = server.protocol === 'https:' ? 'HTTPS_PROXY' : 'HTTP_PROXY';
  const text = variable(env, name);
  const proxy = URL.parse(text.includes('://') ? text : `http://${text}`);
  if (proxy?.protocol !== 'http:' && proxy?.protocol !== 'https:') return undefined;
  return isSpared(server, variable(env, 'NO_PROXY')) ? undefined : proxy.href;
}

function variable(env: NodeJS.ProcessEnv, name: string): string {
  return env[name] || env[name.toLowerCase()] || '';
}

function isSpared(server: URL, noProxy: string): boolean {
  const host = server.hostname.replace(/^\[(.*)\]$/, '$1');
  const address = parseAddress(host);
  if (host === 'localhost' || address === '::1' || address?.startsWith('127.')) return true;
  const port = server.port || (server.protocol === 'https:' ? '443' : '80');
  return noProxy
    .split(',')
    .map((entry) => entry.trim().toLowerCase())
    .some((entry) => entry !== '' && (entry === '*' || matches(entry, { host, address, port })));
}

function matches(
  entry: string,
  { host, address, port }: { readonly host: string; readonly address: Address | undefined; readonly port: string },
): boolean {
  const cidr = parseCidr(entry);
  if (cidr !== undefined) return address !== undefined && cidrContains(cidr, address);

  const [, bracketed, plain, entryPort = ''] = /^(?:\[([^\]]*)\]|([^:]*)):([^:]*)$/.exec(entry) ?? [];
  const name = bracketed ?? plain ?? entry;
  if (name === '' || (entryPort !== '' && entryPort !== port)) return false;
  const entryAddress = parseAddress(name);
  if (entryAddress !== undefined || address !== undefined) return entryAddress === address;
  // "example.com" is itself and everything below; ".example.com" and "*.example.com" only what is below.
  const domain = name.replace(/^\*\./, '.').replace(/^\./, '');
  const ascii = domainToASCII(domain) || domain;
  return host.endsWith(`.${ascii}`) || (host === ascii && /^[^.*]/.test(name));
}
