import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type Endpoint, endpointName } from '../model/endpoint.ts';
import type { Random } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { AccessConfigError, type AccessSource, parseServerUrl, tokenReader } from './access.ts';
import { ApiClient, type ApiClientOptions } from './api-client.ts';
import { ApiError, causeMessage } from './api-error.ts';
import { ApiServers } from './api-servers.ts';
import { KubeconfigAccess } from './kubeconfig.ts';

export interface ApiServersSettings extends Omit<ApiClientOptions, 'access' | 'server' | 'name'> {
  /** `--kubeconfig`. */
  readonly kubeconfig: string | undefined;
  /** `--master`: the server, whatever a kubeconfig or the Pod's environment says. */
  readonly master: string | undefined;
  /** `--api-servers`: preferred to the one that these two name. */
  readonly apiServers: readonly URL[];
  /** `--api-servers-from-cluster` */
  readonly apiServersFromCluster: boolean;
  /** `--kube-api-content-type`. The client speaks JSON; any other type is only logged. */
  readonly contentType: string;
  /** The Pod's mounted service account; elsewhere only in tests. */
  readonly serviceAccountDirectory?: string;
  readonly random: Random;
}

/** Sends nothing yet. Rejects with {@link AccessConfigError} for what only the user can fix. */
export async function createApiServers(settings: ApiServersSettings): Promise<ApiServers> {
  const { contentType, env, log } = settings;
  if (env['NODE_TLS_REJECT_UNAUTHORIZED'] === '0') {
    throw new AccessConfigError(
      'NODE_TLS_REJECT_UNAUTHORIZED=0 would switch off the verification of certificates in the whole process; unset it, and set insecure-skip-tls-verify in the kubeconfig if that is what you want',
    );
  }
  if (contentType !== 'application/json') {
    log.v(1)?.info('Requests to the API server ask for JSON, whatever --kube-api-content-type says', { contentType });
  }
  const { access, server } = await openAccess(settings);
  // A URL is the same server, however often it is written.
  const urls = [...new Map([...settings.apiServers, server].map((url) => [url.href, url])).values()];
  for (const { protocol, hostname, host } of urls) {
    if (protocol !== 'http:' || isLoopback(hostname)) continue;
    log.warn('The API server is reached over plain HTTP: what it says can be forged, and credentials can be read', {
      server: host,
    });
  }
  const clients = urls.map((url) => {
    const isOwn = url.href === server.href;
    const isAlone = urls.filter(({ host }) => host === url.host).length === 1;
    const name = isAlone ? url.host : url.href.replace(/\/$/, '');
    return new ApiClient({ ...settings, server: url, name, access: isOwn ? access : accessAt(url, access) });
  });
  const clientOf = (endpoint: Endpoint) => {
    const url = new URL(`https://${endpointName(endpoint)}`);
    return new ApiClient({ ...settings, server: url, access: accessToLearned(url, access) });
  };
  return new ApiServers({ ...settings, clients, clientOf: settings.apiServersFromCluster ? clientOf : undefined });
}

/** The same credentials and certificate authorities for another server. */
function accessAt(server: URL, access: AccessSource): AccessSource {
  return { current: async () => ({ ...(await access.current()), server }), refused: () => access.refused() };
}

/** The name of the API server for Pods, which is in each of its certificates, and in none of a kubelet. */
const NAME_IN_CLUSTER = 'kubernetes.default.svc';

/**
 * For a server that an object of the cluster names. Whoever can write that object must not get the credentials, so they
 * are only for the holder of a certificate for the API server's own name, by the cluster's own authority.
 */
function accessToLearned(server: URL, access: AccessSource): AccessSource {
  return {
    current: async () => {
      const current = await access.current();
      const { tls } = current;
      if (tls.ca === undefined || tls.skipVerify) {
        const problem = 'a server that the cluster names is used only with a certificate-authority and verification';
        throw new ApiError('unreachable', problem);
      }
      return { ...current, server, tls: { ...tls, serverName: tls.serverName ?? NAME_IN_CLUSTER } };
    },
    refused: () => access.refused(),
  };
}

/** Finds the API server by flags, kubeconfig or environment. Rejects with {@link AccessConfigError}. */
async function openAccess({
  kubeconfig,
  master,
  env,
  clock,
  log,
  serviceAccountDirectory: directory = '/var/run/secrets/kubernetes.io/serviceaccount',
}: ApiServersSettings): Promise<{ readonly access: AccessSource; readonly server: URL }> {
  const override = master === undefined ? undefined : parseServerUrl(master, `--master ${JSON.stringify(master)}`);
  if (kubeconfig !== undefined) {
    const access = await KubeconfigAccess.open({ path: kubeconfig, server: override, clock, log });
    return { access, server: access.server };
  }
  const isInPod = await stat(join(directory, 'token')).then(
    () => true,
    () => false,
  );
  // Upstream drops the service account when there is a --master. Here a Pod needs both: the address from its
  // environment is a ClusterIP, which works only once this very program has made it work.
  const server = override ?? inClusterServer(env);
  const access = isInPod || override === undefined ? serviceAccount(server, directory, log) : anonymous(server);
  return { access, server };
}

/**
 * The service account of the Pod. Not by `KubeConfig.loadFromCluster()`: that costs 200 ms and 17 MB at the start, uses
 * a token for a minute after it was replaced, and sends it with its newline.
 */
function serviceAccount(server: URL, directory: string, log: Log): AccessSource {
  const caFile = join(directory, 'ca.crt');
  const readToken = tokenReader(join(directory, 'token'), log);
  return {
    current: async () => {
      const token = await readToken();
      const ca = await readFile(caFile).catch((error: unknown) => {
        throw new ApiError('credentials', `the file ${caFile} cannot be read: ${causeMessage(error)}`);
      });
      return { server, tls: { ca, skipVerify: false }, headers: { Authorization: `Bearer ${token}` } };
    },
    refused: () => {},
  };
}

/** `--master` alone: no credentials, the machine's certificate authorities. */
function anonymous(server: URL): AccessSource {
  return { current: async () => ({ server, tls: { skipVerify: false }, headers: {} }), refused: () => {} };
}

/** Where the kubelet says the API server is. Throws {@link AccessConfigError} outside of a Pod. */
function inClusterServer(env: NodeJS.ProcessEnv): URL {
  const { KUBERNETES_SERVICE_HOST: host = '', KUBERNETES_SERVICE_PORT: port = '' } = env;
  if (host === '' || port === '') {
    throw new AccessConfigError(
      'there is no API server to watch: pass --kubeconfig FILE or --master URL, or --manifests PATH to serve from files, or run in a Pod (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set)',
    );
  }
  return parseServerUrl(`https://${host.includes(':') ? `[${host}]` : host}:${port}`, 'KUBERNETES_SERVICE_HOST');
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '[::1]' || host.startsWith('127.');
}
