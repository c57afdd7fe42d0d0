import { type LookupAddress, lookup } from 'node:dns';
import { type AgentOptions, Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { createSecureContext, getCACertificates } from 'node:tls';
import { domainToASCII } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import { type Address, cidrContains, parseAddress, parseCidr } from '../model/address.ts';
import type { Endpoint } from '../model/endpoint.ts';
import type { Log } from '../util/log.ts';
import type { Access } from './access.ts';
import { ApiError, causeMessage } from './api-error.ts';

/** The kernel probes a silent connection after 20 s, then ten times a second apart (libuv's `uv__tcp_keepalive`). */
const KEEP_ALIVE_MS = 20_000;

type Lookup = NonNullable<AgentOptions['lookup']>;

/** One pool of connections, replaced when server, certificates or keys have changed. */
export class AgentPool {
  readonly #env: NodeJS.ProcessEnv;
  readonly #log: Log;
  #current: { readonly madeFor: unknown; readonly agent: HttpAgent } | undefined;
  #server: URL;
  /** By host name. */
  readonly #found = new Map<string, readonly Address[]>();

  /** `server`: what {@link servers} is about until the first {@link agentFor}. */
  constructor({ server, env, log }: { readonly server: URL; readonly env: NodeJS.ProcessEnv; readonly log: Log }) {
    this.#server = server;
    this.#env = env;
    this.#log = log;
  }

  /** Where the API server is: all that its name, if it has one, stood for when it was last looked up. */
  get servers(): readonly Endpoint[] {
    const literal = parseAddress(hostOf(this.#server));
    const addresses = literal === undefined ? this.#found.get(this.#server.hostname) : [literal];
    const port = Number(portOf(this.#server));
    return (addresses ?? []).map((address) => ({ address, port }));
  }

  /** Throws an {@link ApiError} `credentials` when certificates cannot be used and there is no earlier pool. */
  agentFor(access: Access): HttpAgent {
    const madeFor = [access.server.origin, access.tls, access.proxy];
    this.#server = access.server;
    if (isDeepStrictEqual(this.#current?.madeFor, madeFor) && this.#current) return this.#current.agent;
    try {
      const agent = createAgent(access, this.#env, this.#lookup);
      if (this.#current !== undefined) {
        this.#log.info('Server address or certificates have changed; new connections use the new ones');
        drain(this.#current.agent);
      }
      this.#current = { madeFor, agent };
      return agent;
    } catch (error) {
      const err = causeMessage(error);
      if (this.#current === undefined) throw new ApiError('credentials', `the certificates cannot be used: ${err}`);
      // Usually the certificate was replaced a moment before its key.
      this.#log.v(2)?.info('Changed certificates cannot be used (yet)', { err });
      return this.#current.agent;
    }
  }

  close(): void {
    this.#current?.agent.destroy();
  }

  readonly #lookup: Lookup = (hostname, options, callback) => {
    lookup(hostname, { ...options, all: true }, (error, found: LookupAddress[] = []) => {
      const addresses = found.flatMap(({ address }) => parseAddress(address) ?? []);
      if (addresses.length > 0) this.#found.set(hostname, addresses);
      const [first] = found;
      if (options.all || first === undefined) callback(error, found);
      else callback(error, first.address, first.family);
    });
  };
}

function hostOf({ hostname }: URL): string {
  return hostname.replace(/^\[(.*)\]$/, '$1');
}

function portOf({ port, protocol }: URL): string {
  return port || (protocol === 'https:' ? '443' : '80');
}

function createAgent(access: Access, env: NodeJS.ProcessEnv, lookup: Lookup): HttpAgent {
  const { server, tls, proxy = environmentProxy(server, env) } = access;
  const options: AgentOptions = {
    keepAlive: true,
    keepAliveMsecs: KEEP_ALIVE_MS,
    maxFreeSockets: 2,
    lookup,
    ...(proxy !== undefined && { proxyEnv: { HTTP_PROXY: proxy, HTTPS_PROXY: proxy } }),
  };
  if (server.protocol === 'http:') return new HttpAgent(options);
  const { cert, key, serverName, skipVerify } = tls;
  return new HttpsAgent({
    ...options,
    // Made once: parsing certificates for every connection is slow and would report errors late.
    secureContext: createSecureContext({
      ca: tls.ca ?? machineAuthorities(),
      ...(cert !== undefined && { cert }),
      ...(key !== undefined && { key }),
    }),
    ...(serverName !== undefined && { servername: serverName }),
    // Always given: without it, the environment variable NODE_TLS_REJECT_UNAUTHORIZED would decide.
    rejectUnauthorized: !skipVerify,
  });
}

/** Go programs trust the authorities of the machine; Node by default trusts only its own list. */
function machineAuthorities(): string[] {
  return [...new Set([...getCACertificates('default'), ...getCACertificates('system')])];
}

/** Lets running requests finish, a watch within its ten minutes, and closes idle connections. */
function drain(agent: HttpAgent): void {
  agent.maxFreeSockets = 0;
  for (const sockets of Object.values(agent.freeSockets)) for (const socket of sockets ?? []) socket.destroy();
}

/**
 * The URL of the HTTP proxy that the environment names for this server, by Go's rules
 * (`golang.org/x/net/http/httpproxy`), because nodes are configured for programs in Go. Node's rules know no CIDR and
 * send loopback through the proxy. A SOCKS proxy is ignored, because Node's agent cannot use one.
 */
export function environmentProxy(server: URL, env: NodeJS.ProcessEnv): string | undefined {
  const name = server.protocol === 'https:' ? 'HTTPS_PROXY' : 'HTTP_PROXY';
  const text = variable(env, name);
  const proxy = URL.parse(text.includes('://') ? text : `http://${text}`);
  if (proxy?.protocol !== 'http:' && proxy?.protocol !== 'https:') return undefined;
  return isExcepted(server, variable(env, 'NO_PROXY')) ? undefined : proxy.href;
}

function variable(env: NodeJS.ProcessEnv, name: string): string {
  return env[name] || env[name.toLowerCase()] || '';
}

function isExcepted(server: URL, noProxy: string): boolean {
  const host = hostOf(server);
  const address = parseAddress(host);
  if (host === 'localhost' || address === '::1' || address?.startsWith('127.')) return true;
  const port = portOf(server);
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
  // "example.com" means itself and all subdomains; ".example.com" and "*.example.com" mean only subdomains.
  const domain = name.replace(/^\*\./, '.').replace(/^\./, '');
  const ascii = domainToASCII(domain) || domain;
  return host.endsWith(`.${ascii}`) || (host === ascii && /^[^.*]/.test(name));
}
