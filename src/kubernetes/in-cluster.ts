import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Log } from '../util/log.ts';
import { type Access, AccessConfigError, type AccessSource, parseServerUrl } from './access.ts';
import { ApiError, causeMessage } from './api-error.ts';
import { TokenFile } from './token-file.ts';

export const SERVICE_ACCOUNT_DIRECTORY = '/var/run/secrets/kubernetes.io/serviceaccount';

/**
 * The service account of the Pod that we run in. Not `KubeConfig.loadFromCluster()`: it would load 60 MB of client code
 * for three values, keeps the token for a minute and sends it with its newline.
 */
export class InClusterAccess implements AccessSource {
  readonly #server: URL;
  readonly #caFile: string;
  readonly #token: TokenFile;

  constructor({ server, directory, log }: { readonly server: URL; readonly directory: string; readonly log: Log }) {
    this.#server = server;
    this.#caFile = join(directory, 'ca.crt');
    this.#token = new TokenFile(join(directory, 'token'), log);
  }

  async current(): Promise<Access> {
    const token = await this.#token.read();
    const ca = await readFile(this.#caFile).catch((error: unknown) => {
      throw new ApiError('credentials', `the file ${this.#caFile} cannot be read: ${causeMessage(error)}`);
    });
    return { server: this.#server, tls: { ca, skipVerify: false }, headers: { Authorization: `Bearer ${token}` } };
  }

  refused(): void {}
}

/** Where the kubelet says the API server is. Throws {@link AccessConfigError} outside of a Pod. */
export function inClusterServer(env: NodeJS.ProcessEnv): URL {
  const host = env['KUBERNETES_SERVICE_HOST'] ?? '';
  const port = env['KUBERNETES_SERVICE_PORT'] ?? '';
  if (host === '' || port === '') {
    throw new AccessConfigError(
      'there is no API server to watch: pass --kubeconfig FILE or --master URL, or run in a Pod (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set)',
    );
  }
  return parseServerUrl(`https://${host.includes(':') ? `[${host}]` : host}:${port}`, 'KUBERNETES_SERVICE_HOST');
}
