import { statSync } from 'node:fs';
import type { Agent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import type { Config, KubernetesConfig } from '../config/config.ts';
import { PROGRAM } from '../config/version.ts';
import type { Access } from '../kubernetes/access.ts';
import { AgentPool } from '../kubernetes/agent-pool.ts';
import { createApiClient, openAccess } from '../kubernetes/create-api-client.ts';
import { environmentProxy } from '../kubernetes/environment-proxy.ts';
import { nodeName } from '../kubernetes/node-object.ts';
import { createManifestSource } from '../manifests/manifest-source.ts';
import type { Service } from '../model/service.ts';
import type { SourceEvent } from '../model/source.ts';
import { type ApiSteps, type AskApi, checkApiConnection } from '../operate/check/api-connection.ts';
import { counted } from '../operate/check/counted.ts';
import { checkAuthority, checkClientCertificate, checkSecretFiles } from '../operate/check/credentials.ts';
import { type Finding, fail, ok } from '../operate/check/finding.ts';
import { FindingsLog } from '../operate/check/findings-log.ts';
import { checkPermissions } from '../operate/check/permissions.ts';
import { askerOf } from '../operate/check/probes/ask-api.ts';
import { resolveName, STEP_MS, tryTcp, tryTls } from '../operate/check/probes/connection.ts';
import type { Check } from '../operate/check/run-checks.ts';
import { listServices } from '../operate/check/services.ts';
import { systemClock as clock } from '../util/system-clock.ts';
import { messageOf } from '../util/text.ts';
import { withDeadline } from '../util/wait.ts';

/** What the check of the source has found, for those of the machine. */
export interface KnownServices {
  services: readonly Service[];
}

/** A file that never comes to rest keeps the first reading waiting for five seconds. */
const MANIFESTS_MS = 10_000;

export function sourceChecks(config: Config, known: KnownServices): readonly Check[] {
  const { source } = config;
  if (source.kind === 'manifests') return [{ name: 'manifests', run: () => checkManifests(source.paths, known) }];
  let api: OpenApi | undefined;
  return [
    {
      name: 'credentials',
      run: async () => {
        const opened = await checkCredentials(source);
        api = opened.api;
        return opened.findings;
      },
    },
    {
      name: 'API server',
      run: async () => {
        if (api === undefined) return [];
        const { findings, isUsable } = await connect(source, api);
        if (!isUsable) api = undefined;
        return findings;
      },
    },
    {
      name: 'permissions',
      run: async () => {
        if (api === undefined) return [];
        const findings = await checkPermissions({ ask: api.ask, nodeName: nodeName(config.hostnameOverride) });
        // Services that cannot be listed are told; to be refused once more tells nothing new.
        if (findings.some(({ level }) => level === 'fail')) api = undefined;
        return findings;
      },
    },
    {
      name: 'Services',
      run: async () => {
        if (api === undefined) return [];
        const { services, findings } = await listServices({ ask: api.ask, clock });
        known.services = services;
        return findings;
      },
    },
  ];
}

/** Reads them as a run would. */
async function checkManifests(paths: readonly string[], known: KnownServices): Promise<readonly Finding[]> {
  const log = new FindingsLog('mend the file');
  const source = createManifestSource({ paths, clock, log });
  const objects = new Map<string, SourceEvent>();
  try {
    await withDeadline(
      new Promise<void>((resolve, reject) => {
        const apply = (events: readonly SourceEvent[]) => {
          for (const event of events) objects.set(`${event.kind} ${event.key}`, event);
        };
        source.start({ apply, synced: resolve }).catch(reject);
      }),
      { clock, ms: MANIFESTS_MS, late: `they could not be read within ${MANIFESTS_MS / 1_000} s` },
    );
  } catch (error) {
    return [...log.findings, fail(messageOf(error), 'mend --manifests')];
  } finally {
    await source.stop();
  }
  known.services = [...objects.values()].flatMap((event) => (event.kind === 'Service' ? (event.value ?? []) : []));
  const ports = known.services.reduce((sum, service) => sum + service.ports.length, 0);
  return [
    ok(`${counted(known.services.length, 'Service')} with ${counted(ports, 'port')} in ${paths.join(', ')}`),
    ...log.findings,
  ];
}

interface OpenApi {
  readonly server: URL;
  readonly access: Access;
  readonly agent: Agent;
  readonly ask: AskApi;
}

async function checkCredentials(
  source: KubernetesConfig,
): Promise<{ readonly findings: readonly Finding[]; readonly api?: OpenApi }> {
  const log = new FindingsLog('mend the kubeconfig');
  const findings = () => [...log.findings];
  try {
    const options = { ...source, env: process.env, clock, log };
    const client = await createApiClient({ ...options, userAgent: PROGRAM, metrics: { requestDone: () => {} } });
    client.close();
    const opened = await openAccess({ ...options, log: new FindingsLog('') });
    const secrets = checkSecretFiles(opened.secretFiles.map((path) => ({ path, mode: modeOf(path) })));
    const access = await withDeadline(opened.access.current(), {
      clock,
      ms: STEP_MS,
      late: `the credentials were not there within ${STEP_MS / 1_000} s (an exec plugin, or an OIDC provider?)`,
    });
    const agent = new AgentPool({ env: process.env, log }).agentFor(access);
    const certificates = [...checkAuthority(access.tls), ...checkClientCertificate(access.tls, clock.wallNow())];
    const kind = [access.tls.cert && 'a client certificate', access.headers['Authorization'] && 'a token or password'];
    return {
      findings: [
        ok(
          `${originOf(source)} gives ${kind.filter(Boolean).join(' and ') || 'no credentials'} for ${opened.server.href}`,
        ),
        ...findings(),
        ...secrets,
        ...certificates,
      ],
      api: { server: opened.server, access, agent, ask: askerOf({ access, agent, clock }) },
    };
  } catch (error) {
    return { findings: [...findings(), fail(messageOf(error), cureOf(source))] };
  }
}

function connect(source: KubernetesConfig, { server, access, agent, ask }: OpenApi) {
  const steps: ApiSteps = {
    resolve: (host) => resolveName(host, clock),
    tcp: (at) => tryTcp(at, clock),
    tls: (at) => tryTls({ ...(agent instanceof HttpsAgent && agent.options), ...at }, clock),
    ask,
  };
  return checkApiConnection({
    server,
    origin: source.master === undefined ? originOf(source) : '--master',
    isProxied: (access.proxy ?? environmentProxy(server, process.env)) !== undefined,
    skipVerify: access.tls.skipVerify,
    clockSkewMs: (date) => {
      const there = parseHttpDate(date);
      return there === undefined ? undefined : clock.wallNow() - there;
    },
    steps,
  });
}

/** `Fri, 20 Nov 2026 13:00:00 GMT`, as milliseconds since 1970. */
function parseHttpDate(text: string): number | undefined {
  // biome-ignore lint/style/noRestrictedGlobals: reads an instant that the server has written; asks for no time
  const ms = Date.parse(text);
  return Number.isNaN(ms) ? undefined : ms;
}

function originOf({ kubeconfig, master }: KubernetesConfig): string {
  if (kubeconfig !== undefined) return kubeconfig;
  return master === undefined ? "the Pod's service account" : '--master';
}

/** Of credentials that cannot be had. */
function cureOf({ kubeconfig, master }: KubernetesConfig): string {
  if (kubeconfig !== undefined) return `mend ${kubeconfig}, or give another --kubeconfig`;
  return master === undefined
    ? 'give --kubeconfig or --manifests, as the proxy is to be started; in a Pod, mend its service account'
    : 'mend --master';
}

function modeOf(path: string): number | undefined {
  try {
    return statSync(path).mode;
  } catch {
    return undefined;
  }
}
