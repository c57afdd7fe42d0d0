import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Log } from '../util/log.ts';
import { AccessConfigError, type AccessSource, parseServerUrl, tokenReader } from './access.ts';
import { ApiClient, type ApiClientOptions } from './api-client.ts';
import { ApiError, causeMessage } from './api-error.ts';
import { KubeconfigAccess } from './kubeconfig.ts';

export interface ApiClientSettings extends Omit<ApiClientOptions, 'access' | 'host'> {
  /** `--kubeconfig`. */
  readonly kubeconfig: string | undefined;
  /** `--master`: the server, whatever a kubeconfig or the Pod's environment says. */
  readonly master: string | undefined;
  /** `--kube-api-content-type`. The client speaks JSON; any other type is only logged. */
  readonly contentType: string;
  /** The Pod's mounted service account; elsewhere only in tests. */
  readonly serviceAccountDirectory?: string;
}

/**
 * The one connection pool to the API server. Sends nothing yet. Rejects with {@link AccessConfigError} for what only
 * the user can fix.
 */
export async function createApiClient(settings: ApiClientSettings): Promise<ApiClient> {
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
  if (server.protocol === 'http:' && !isLoopback(server.hostname)) {
    log.warn('The API server is reached over plain HTTP: what it says can be forged, and credentials can be read', {
      server: server.host,
    });
  }
  return new ApiClient({ ...settings, access, host: server.host });
}

/** Finds the API server by flags, kubeconfig or environment. Rejects with {@link AccessConfigError}. */
async function openAccess({
  kubeconfig,
  master,
  env,
  clock,
  log,
  serviceAccountDirectory: directory = '/var/run/secrets/kubernetes.io/serviceaccount',
}: ApiClientSettings): Promise<{ readonly access: AccessSource; readonly server: URL }> {
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
