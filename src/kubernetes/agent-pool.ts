import { createHash } from 'node:crypto';
import { type AgentOptions, Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { createSecureContext, getCACertificates } from 'node:tls';
import type { Log } from '../util/log.ts';
import type { Access } from './access.ts';
import { ApiError, causeMessage } from './api-error.ts';
import { environmentProxy } from './environment-proxy.ts';

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
