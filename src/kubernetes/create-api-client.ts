import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { ApiRequestMetrics } from '../model/metrics.ts';
import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { type Access, AccessConfigError, type AccessSource, parseServerUrl } from './access.ts';
import { ApiClient } from './api-client.ts';
import { InClusterAccess, inClusterServer, SERVICE_ACCOUNT_DIRECTORY } from './in-cluster.ts';
import { KubeconfigAccess } from './kubeconfig.ts';

export interface ApiAccessOptions {
  /** `--kubeconfig`. */
  readonly kubeconfig: string | undefined;
  /** `--master`: the server, whatever a kubeconfig or the Pod's environment says. */
  readonly master: string | undefined;
  /** `--kube-api-qps` and `--kube-api-burst`; watches and events do not count. */
  readonly qps: number;
  readonly burst: number;
  /** `--kube-api-content-type`. JSON is what is spoken; anything else is only noted. */
  readonly contentType: string;
  /** As `kube-userspace-proxy/1.2.3`. */
  readonly userAgent: string;
  readonly env: NodeJS.ProcessEnv;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: ApiRequestMetrics;
  /** The Pod's mounted service account; only tests have it elsewhere. */
  readonly serviceAccountDirectory?: string;
}

export interface OpenedAccess {
  readonly access: AccessSource;
  readonly server: URL;
  /** Paths of the keys and tokens that a kubeconfig names; those of a Pod are the kubelet's business. */
  readonly secretFiles: readonly string[];
}

/**
 * The connection that everything about the API server shares. Nothing is sent yet. Rejects with
 * {@link AccessConfigError} for what only the user can mend.
 */
export async function createApiClient(options: ApiAccessOptions): Promise<ApiClient> {
  const { qps, burst, contentType, userAgent, env, clock, log, metrics } = options;
  if (env['NODE_TLS_REJECT_UNAUTHORIZED'] === '0') {
    throw new AccessConfigError(
      'NODE_TLS_REJECT_UNAUTHORIZED=0 would switch off the verification of certificates in the whole process; unset it, and set insecure-skip-tls-verify in the kubeconfig if that is what you want',
    );
  }
  if (contentType !== 'application/json') {
    log.v(1)?.info('The API server is asked for JSON, whatever --kube-api-content-type says', { contentType });
  }
  const { access, server } = await openAccess(options);
  if (server.protocol === 'http:' && !isLoopback(server.hostname)) {
    log.warn('The API server is reached over plain HTTP: what it says can be forged, and credentials can be read', {
      server: server.host,
    });
  }
  return new ApiClient({ access, host: server.host, qps, burst, userAgent, env, clock, log, metrics });
}

/** Where the API server is, by flags, kubeconfig or environment. Rejects with {@link AccessConfigError}. */
export async function openAccess({
  kubeconfig,
  master,
  env,
  clock,
  log,
  serviceAccountDirectory: directory = SERVICE_ACCOUNT_DIRECTORY,
}: Pick<
  ApiAccessOptions,
  'kubeconfig' | 'master' | 'env' | 'clock' | 'log' | 'serviceAccountDirectory'
>): Promise<OpenedAccess> {
  const override = master === undefined ? undefined : parseServerUrl(master, `--master ${JSON.stringify(master)}`);
  if (kubeconfig !== undefined) {
    const access = await KubeconfigAccess.open({ path: kubeconfig, server: override, clock, log });
    return { access, server: access.server, secretFiles: access.secretFiles };
  }
  const isInPod = await stat(join(directory, 'token')).then(
    () => true,
    () => false,
  );
  // Unlike upstream, which drops the service account then: naming the real address is what a Pod must do here, because
  // the one from its environment is a ClusterIP that only works once this very program has made it work.
  const server = override ?? inClusterServer(env);
  const access =
    isInPod || override === undefined ? new InClusterAccess({ server, directory, log }) : anonymous(server);
  return { access, server, secretFiles: [] };
}

/** `--master` alone: no credentials, the machine's certificate authorities. */
function anonymous(server: URL): AccessSource {
  const access: Access = { server, tls: { skipVerify: false }, headers: {} };
  return { current: async () => access, refused: () => {} };
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '[::1]' || host.startsWith('127.');
}
