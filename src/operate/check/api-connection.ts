import { readStatus } from '../../kubernetes/api-error.ts';
import { messageOf } from '../../util/text.ts';
import { type Finding, fail, ok, warn } from './finding.ts';

export interface ServerCertificate {
  /** OpenSSL's or Node's code for why it is not to be trusted; `undefined` when it is. */
  readonly problem: string | undefined;
  /** `DNS:kubernetes, IP Address:10.96.0.1` */
  readonly names: string;
  /** As in `Nov 20 13:00:00 2027 GMT`. */
  readonly validTo: string;
}

export interface ApiAnswer {
  readonly status: number;
  /** Of the header `Date`. */
  readonly date: string | undefined;
  /** `undefined` when it is not JSON. */
  readonly body: unknown;
}

/** A GET, or a POST of `body`. Rejects when there is no answer. */
export type AskApi = (path: string, body?: unknown) => Promise<ApiAnswer>;

/** The steps to the API server, each of which rejects with an error that has a `code`. */
export interface ApiSteps {
  readonly resolve: (host: string) => Promise<readonly string[]>;
  readonly tcp: (at: { readonly host: string; readonly port: number }) => Promise<void>;
  readonly tls: (at: { readonly host: string; readonly port: number }) => Promise<ServerCertificate>;
  readonly ask: AskApi;
}

export interface ApiConnectionFacts {
  readonly server: URL;
  /** Where the server's address comes from, for advice: "the kubeconfig", "--master". */
  readonly origin: string;
  /** A proxy does these steps for us. */
  readonly isProxied: boolean;
  /** `insecure-skip-tls-verify`, of which the kubeconfig's own check warns. */
  readonly skipVerify: boolean;
  /** `undefined` while there is no telling. Of each answer. */
  readonly clockSkewMs: (date: string) => number | undefined;
  readonly steps: ApiSteps;
}

export interface ApiConnection {
  readonly findings: readonly Finding[];
  /** Requests will be answered, so there is a point in sending more. */
  readonly isUsable: boolean;
}

const HTTPS_PORT = 443;
const HTTP_PORT = 80;

/** Certificates and tokens begin or end to be valid by the clock. */
const MAX_SKEW_MS = 30_000;

/** Goes to the API server step by step, as far as it gets: name, connection, TLS, credentials. */
export async function checkApiConnection(facts: ApiConnectionFacts): Promise<ApiConnection> {
  const { server, isProxied, steps } = facts;
  const isTls = server.protocol === 'https:';
  const at = {
    host: server.hostname.replace(/^\[|\]$/g, ''),
    port: Number(server.port) || (isTls ? HTTPS_PORT : HTTP_PORT),
  };
  const findings: Finding[] = [];
  try {
    if (!isProxied) {
      await steps.resolve(at.host).catch((error) => stop(nameFailure(at.host, error)));
      await steps.tcp(at).catch((error) => stop(tcpFailure(server.host, error, facts)));
      if (isTls) {
        const certificate = await steps.tls(at).catch((error) => stop(tlsFailure(server.host, error)));
        if (certificate.problem !== undefined && !facts.skipVerify) {
          return stop(certificateFailure(server.host, certificate, certificate.problem));
        }
      }
    }
    const answer = await steps.ask('/version').catch((error) => stop(httpFailure(error, facts)));
    if (answer.status === 401) return stop(refused(server.host, facts));
    // What Go's TLS servers answer to HTTP; the API server itself takes no exception at this request.
    if (answer.status === 400 && !isTls) return stop(withoutTls(server.host));
    const found = `${server.host} answers${isTls ? ' over TLS' : ''}${versionOf(answer)}`;
    findings.push(answer.status >= 500 ? warn(found, 'see that it is well') : ok(found));
    if (answer.date !== undefined) findings.push(...skew(facts.clockSkewMs(answer.date)));
    return { findings, isUsable: true };
  } catch (error) {
    if (!(error instanceof Stop)) throw error;
    return { findings: [...findings, error.finding], isUsable: false };
  }
}

class Stop extends Error {
  readonly finding: Finding;

  constructor(finding: Finding) {
    super(finding.found);
    this.finding = finding;
  }
}

function stop(finding: Finding): never {
  throw new Stop(finding);
}

function codeOf(error: unknown): string {
  return String((error as NodeJS.ErrnoException | undefined)?.code ?? '');
}

function nameFailure(host: string, error: unknown): Finding {
  const name = `the name of the API server, ${host}, `;
  return codeOf(error) === 'ENOTFOUND'
    ? fail(`${name}is not known`, 'check its spelling and /etc/resolv.conf, or name the server by its address')
    : fail(
        `${name}cannot be looked up: ${messageOf(error)}`,
        'check /etc/resolv.conf, or name the server by its address',
      );
}

function tcpFailure(host: string, error: unknown, { origin }: ApiConnectionFacts): Finding {
  switch (codeOf(error)) {
    case 'ECONNREFUSED':
      return fail(
        `nothing listens at ${host} (the connection was refused)`,
        `start the API server, or mend its address in ${origin}`,
      );
    case 'ETIMEDOUT':
      return fail(
        `${host} does not answer`,
        `check the address in ${origin}, routes and firewalls; a ClusterIP works only once a proxy runs`,
      );
    default:
      return fail(`${host} cannot be reached: ${messageOf(error)}`, `check routes, and the address in ${origin}`);
  }
}

function tlsFailure(host: string, error: unknown): Finding {
  switch (codeOf(error)) {
    case 'ERR_SSL_WRONG_VERSION_NUMBER':
    case 'ERR_SSL_PACKET_LENGTH_TOO_LONG':
    case 'EPROTO':
      return fail(`${host} does not speak TLS`, 'check the port; a server without TLS has an address with http://');
    case 'ECONNRESET':
      return fail(
        `${host} ended the connection within the TLS handshake`,
        'check the port, and that it is the API server',
      );
    default:
      return fail(`the TLS handshake with ${host} failed: ${messageOf(error)}`, 'check that it is the API server');
  }
}

function certificateFailure(host: string, { names, validTo }: ServerCertificate, problem: string): Finding {
  const subject = `the certificate of ${host} `;
  switch (problem.replace(/^Error: /, '').split(/[:\s]/)[0]) {
    case 'CERT_HAS_EXPIRED':
      return fail(`${subject}has expired on ${validTo}`, "renew it on the server, or set this machine's clock");
    case 'CERT_NOT_YET_VALID':
      return fail(`${subject}is not valid yet`, "set this machine's clock");
    case 'ERR_TLS_CERT_ALTNAME_INVALID':
    case 'Hostname/IP':
      return fail(
        `${subject}is for other names: ${names}`,
        'use one of these, or set tls-server-name in the kubeconfig',
      );
    case 'DEPTH_ZERO_SELF_SIGNED_CERT':
    case 'SELF_SIGNED_CERT_IN_CHAIN':
    case 'UNABLE_TO_VERIFY_LEAF_SIGNATURE':
    case 'UNABLE_TO_GET_ISSUER_CERT':
    case 'UNABLE_TO_GET_ISSUER_CERT_LOCALLY':
      return fail(
        `${subject}is not signed by an authority that the credentials name`,
        "put the cluster's authority into certificate-authority(-data) of the kubeconfig",
      );
    default:
      return fail(`${subject}cannot be trusted: ${problem}`, 'check it with openssl s_client -connect');
  }
}

function withoutTls(host: string): Finding {
  return fail(`${host} does not take requests without TLS`, 'write its address with https://');
}

function httpFailure(error: unknown, { server: { host, protocol }, isProxied }: ApiConnectionFacts): Finding {
  // With TLS 1.3 a server refuses a client's certificate only after the handshake.
  if (/^ERR_SSL_.*CERTIFICATE/.test(codeOf((error as Error).cause))) {
    return fail(
      `${host} does not accept the client certificate, or wants one`,
      'check client-certificate(-data) and client-key(-data) of the kubeconfig, and which cluster they are for',
    );
  }
  const [way, advice] = isProxied
    ? [' (there is an HTTP proxy on the way)', 'check HTTPS_PROXY, NO_PROXY, and proxy-url of the kubeconfig']
    : ['', `check the port${protocol === 'http:' ? ', whether it wants https://' : ''}, and that it is the API server`];
  return fail(`${host} gave no answer${way}: ${messageOf(error).trim()}`, advice);
}

function refused(host: string, { origin }: ApiConnectionFacts): Finding {
  return fail(
    `${host} does not accept the credentials (HTTP 401)`,
    `they may have expired or be another cluster's; mend them in ${origin}`,
  );
}

function versionOf({ status, body }: ApiAnswer): string {
  if (typeof body !== 'object' || body === null) return status < 400 ? '' : `, with HTTP ${status}`;
  const { gitVersion } = body as { readonly gitVersion?: unknown };
  if (typeof gitVersion === 'string') return `, Kubernetes ${gitVersion.slice(0, 60)}`;
  const { message } = readStatus(body);
  return message === undefined ? '' : `, HTTP ${status}: ${message}`;
}

function skew(ms: number | undefined): readonly Finding[] {
  if (ms === undefined) return [];
  const seconds = Math.round(Math.abs(ms) / 1_000);
  if (Math.abs(ms) < MAX_SKEW_MS) return [ok(`the clocks of both differ by ${seconds} s`)];
  const which = ms > 0 ? 'ahead of' : 'behind';
  return [
    warn(
      `the clock of this machine is ${seconds} s ${which} that of the API server; certificates and tokens count by it`,
      'set it, and keep it set (chrony, systemd-timesyncd)',
    ),
  ];
}
