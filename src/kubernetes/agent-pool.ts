import { createHash } from 'node:crypto';
import { type AgentOptions, Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { createSecureContext, getCACertificates } from 'node:tls';
import { domainToASCII } from 'node:url';
import { type Address, cidrContains, parseAddress, parseCidr } from '../model/address.ts';
import type { Log } from '../util/log.ts';
import type { Access } from './access.ts';
import { ApiError, causeMessage } from './api-error.ts';

/**
 * The kernel gives a connection up 30 s after the last packet of the peer: it probes after 20 s and then each second,
 * ten times (the last two are libuv's, `uv__tcp_keepalive`).
 */
const KEEP_ALIVE_MS = 20_000;

/** One pool of connections, replaced by another when server, certificates or keys have changed. */
export class AgentPool {
  readonly #env: NodeJS.ProcessEnv;
  readonly #log: Log;
  #current: { readonly identity: string; readonly agent: HttpAgent } | undefined;

  constructor({ env, log }: { readonly env: NodeJS.ProcessEnv; readonly log: Log }) {
    this.#env = env;
    this.#log = log;
  }

  /** Throws an {@link ApiError} `credentials` when certificates cannot be used and none were before. */
  agentFor(access: Access): HttpAgent {
    const identity = identityOf(access);
    if (this.#current?.identity === identity) return this.#current.agent;
    try {
      const agent = createAgent(access, this.#env);
      if (this.#current !== undefined) {
        this.#log.info('Server address or certificates have changed; new connections use the new ones');
        drain(this.#current.agent);
      }
      this.#current = { identity, agent };
      return agent;
    } catch (error) {
      const err = causeMessage(error);
      if (this.#current === undefined) throw new ApiError('credentials', `the certificates cannot be used: ${err}`);
      // Mostly a certificate that has been replaced a moment before its key.
      this.#log.v(2)?.info('Changed certificates cannot be used (yet)', { err });
      return this.#current.agent;
    }
  }

  close(): void {
    this.#current?.agent.destroy();
  }
}

function createAgent(access: Access, env: NodeJS.ProcessEnv): HttpAgent {
  const { server, tls, proxy = environmentProxy(server, env) } = access;
  const options: AgentOptions = {
    keepAlive: true,
    keepAliveMsecs: KEEP_ALIVE_MS,
    // Probes and lists take turns on one; each further one would only be idle.
    maxFreeSockets: 2,
    ...(proxy !== undefined && { proxyEnv: { HTTP_PROXY: proxy, HTTPS_PROXY: proxy } }),
  };
  if (server.protocol === 'http:') return new HttpAgent(options);
  const { cert, key, serverName, skipVerify } = tls;
  return new HttpsAgent({
    ...options,
    // Made once: parsing certificates for every connection would be slow, and an error would come late.
    secureContext: createSecureContext({
      ca: tls.ca ?? machineAuthorities(),
      ...(cert !== undefined && { cert }),
      ...(key !== undefined && { key }),
    }),
    ...(serverName !== undefined && { servername: serverName }),
    // Said either way: left out, the environment variable NODE_TLS_REJECT_UNAUTHORIZED would decide.
    rejectUnauthorized: !skipVerify,
  });
}

/** Go programs trust the machine's authorities; Node on its own would only trust those it was built with. */
function machineAuthorities(): string[] {
  return [...new Set([...getCACertificates('default'), ...getCACertificates('system')])];
}

/** Lets requests that are under way come to their end, a watch within its ten minutes, and closes what is idle. */
function drain(agent: HttpAgent): void {
  agent.maxFreeSockets = 0;
  for (const sockets of Object.values(agent.freeSockets)) for (const socket of sockets ?? []) socket.destroy();
}

/** A digest, so that the keys themselves are not kept a second time. */
function identityOf({ server, tls, proxy }: Access): string {
  const parts = [server.origin, tls.ca, tls.cert, tls.key, tls.serverName, tls.skipVerify, proxy];
  const digest = createHash('sha256');
  for (const part of parts) digest.update(`${typeof part}:${String(part)}\0`);
  return digest.digest('base64');
}

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
