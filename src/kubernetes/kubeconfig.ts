import { readFile, stat } from 'node:fs/promises';
import type { RequestOptions } from 'node:https';
import { dirname, isAbsolute, join } from 'node:path';
import type { Cluster, KubeConfig } from '@kubernetes/client-node';
import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { FieldError, isObject, show } from '../util/untrusted.ts';
import { withDeadline } from '../util/wait.ts';
import { DocumentError, parseDocuments } from '../util/yaml.ts';
import {
  type Access,
  AccessConfigError,
  type AccessSource,
  parseServerUrl,
  type TlsMaterial,
  tokenReader,
} from './access.ts';
import { ApiError, causeMessage } from './api-error.ts';
import { CREDENTIALS_DEADLINE_MS, ExecPlugin, type PluginCredentials } from './exec-plugin.ts';

/** A kubeconfig in use. Replaced as a whole when the file changes. */
interface Loaded {
  readonly text: string;
  /** Holds the one context that is used. */
  readonly config: KubeConfig;
  readonly server: URL;
  /** Of the user's `tokenFile`. */
  readonly readToken: (() => Promise<string>) | undefined;
  readonly plugin: ExecPlugin | undefined;
  /** The answer that is awaited, so that requests at the same time ask an OIDC provider once. */
  pending?: Promise<RequestOptions> | undefined;
}

interface KubeconfigOptions {
  readonly path: string;
  /** `--master`: takes the place of the cluster's `server`. */
  readonly server: URL | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * A kubeconfig file. client-node's `KubeConfig` resolves contexts, OIDC and certificates. It does not do the rest: it
 * ignores the `tokenFile` of a user, which kubeadm's kube-proxy needs, it reads the file only once, and
 * {@link ExecPlugin} says what it does with a plugin.
 */
export class KubeconfigAccess implements AccessSource {
  readonly #options: KubeconfigOptions;
  #loaded: Loaded;
  /** The last text that could not be used, so that it is reported once. */
  #badText: string | undefined;

  private constructor(options: KubeconfigOptions, loaded: Loaded) {
    this.#options = options;
    this.#loaded = loaded;
  }

  /** Rejects with {@link AccessConfigError} when the file cannot be used. */
  static async open(options: KubeconfigOptions): Promise<KubeconfigAccess> {
    const text = await readFile(options.path, 'utf8').catch((error: unknown) => {
      throw new AccessConfigError(`the kubeconfig ${options.path} cannot be read: ${causeMessage(error)}`);
    });
    const loaded = await load(text, options);
    await warnOfLooseFile(options, loaded);
    if (loaded.config.getCurrentCluster()?.skipTLSVerify && loaded.server.protocol === 'https:') {
      options.log.warn(
        'The kubeconfig says insecure-skip-tls-verify: the certificate of the API server is not verified; anyone in between can be it',
        { file: options.path, server: loaded.server.host },
      );
    }
    return new KubeconfigAccess(options, loaded);
  }

  get server(): URL {
    return this.#loaded.server;
  }

  async current(): Promise<Access> {
    const loaded = await this.#reload();
    const late = `the kubeconfig gave no credentials within ${CREDENTIALS_DEADLINE_MS / 1_000} s`;
    const deadline = { clock: this.#options.clock, ms: CREDENTIALS_DEADLINE_MS, late };
    loaded.pending ??= withDeadline(resolve(loaded.config), deadline).finally(() => {
      loaded.pending = undefined;
    });
    const options = await loaded.pending.catch((error: Error) => {
      throw error instanceof ApiError ? error : new ApiError('credentials', error.message);
    });
    return await toAccess(options, await loaded.plugin?.credentials(), loaded);
  }

  refused(): void {
    this.#loaded.plugin?.refused();
  }

  async #reload(): Promise<Loaded> {
    const { path, log } = this.#options;
    const text = await readFile(path, 'utf8').catch(() => undefined);
    if (text === undefined || text === this.#loaded.text || text === this.#badText) return this.#loaded;
    try {
      this.#loaded = await load(text, this.#options);
      log.info('The kubeconfig has changed and is used in its new form', { file: path });
    } catch (error) {
      this.#badText = text;
      log.error('The kubeconfig has changed and cannot be used; the last one is', {
        file: path,
        err: causeMessage(error),
      });
    }
    return this.#loaded;
  }
}

async function load(text: string, { path, server: master, clock, log }: KubeconfigOptions): Promise<Loaded> {
  // Imported here, because it costs 200 ms and 17 MB that only users of a kubeconfig should pay.
  const { KubeConfig } = await import('@kubernetes/client-node/dist/config.js');
  const fail = (problem: string) => new AccessConfigError(`the kubeconfig ${path} cannot be used: ${problem}`);
  const document = parse(text, fail);
  const config = new KubeConfig();
  try {
    config.loadFromString(JSON.stringify(document));
  } catch (error) {
    // Of an alias inside of its anchor, V8 speaks in several lines.
    throw fail(causeMessage(error).split('\n', 1).join());
  }
  config.makePathsAbsolute(dirname(path));
  const cluster = config.getCurrentCluster();
  if (cluster === null) {
    throw fail(`its current-context ${show(config.currentContext ?? '')} names no context with a cluster`);
  }
  const server = master ?? parseServerUrl(cluster.server, `the server of the cluster ${show(cluster.name)} in ${path}`);
  const userName = config.getContextObject(config.currentContext)?.user;
  const user = config.getCurrentUser() ?? { name: 'anonymous' };
  if (userName !== undefined && user.name !== userName) throw fail(`it has no user ${show(userName)}`);
  const named = tokenFileOf(document, user.name);
  const tokenFile = named && absolute(named, dirname(path));
  checkProxy(cluster, fail);
  config.loadFromClusterAndUser(
    // client-node refuses plain HTTP unless verification is off, and there is nothing to verify.
    { ...cluster, server: server.href, skipTLSVerify: cluster.skipTLSVerify || server.protocol === 'http:' },
    { ...user, exec: undefined },
  );
  const readToken = tokenFile === undefined ? undefined : tokenReader(tokenFile, log);
  try {
    const { exec } = user;
    const plugin = exec ? new ExecPlugin({ exec, cluster, directory: dirname(path), clock }) : undefined;
    return { text, config, server, readToken, plugin };
  } catch (error) {
    throw error instanceof FieldError ? fail(`in the exec of its user ${show(user.name)}: ${error.message}`) : error;
  }
}

/** Errors never quote the text, because it contains keys and tokens. */
function parse(text: string, fail: (problem: string) => Error): object {
  let value: unknown;
  try {
    value = parseDocuments(text)[0]?.value;
  } catch (error) {
    if (!(error instanceof DocumentError)) throw error;
    throw fail(`it is not valid YAML at line ${error.line}`);
  }
  if (!isObject(value)) throw fail('it is not a YAML object');
  checkTexts(value, fail);
  return value;
}

/** Fields that client-node takes for text without a look. */
const TEXTS: Readonly<Record<string, { readonly part: string; readonly fields: readonly string[] }>> = {
  clusters: {
    part: 'cluster',
    fields: ['server', 'certificate-authority', 'certificate-authority-data', 'tls-server-name', 'proxy-url'],
  },
  contexts: { part: 'context', fields: ['cluster', 'user', 'namespace'] },
  users: {
    part: 'user',
    fields: [
      ...['token', 'tokenFile', 'username', 'password'],
      ...['client-certificate', 'client-certificate-data', 'client-key', 'client-key-data'],
    ],
  },
};

function checkTexts(document: Readonly<Record<string, unknown>>, fail: (problem: string) => Error): void {
  const checkText = (value: unknown, place: string) => {
    const isText = value === undefined || value === null || typeof value === 'string';
    if (!isText) throw fail(`${place} is no text; put it in quotes`);
  };
  checkText(document['current-context'], 'current-context');
  for (const [list, { part, fields }] of Object.entries(TEXTS)) {
    const entries = document[list] ?? [];
    if (!Array.isArray(entries)) throw fail(`its ${list} are no list`);
    for (const [index, entry] of entries.entries()) {
      const place = `${list}[${index}]`;
      const content = isObject(entry) ? (entry[part] ?? {}) : undefined;
      if (!isObject(entry) || !isObject(content)) throw fail(`${place} is no object with a ${part}`);
      checkText(entry['name'], `${place}.name`);
      for (const field of fields) checkText(content[field], `${place}.${part}.${field}`);
    }
  }
}

/** The way to `users[name].user.tokenFile` through a document whose texts have been checked. */
function tokenFileOf(document: object, userName: string): string | undefined {
  const { users } = document as { users?: readonly { name?: unknown; user?: { tokenFile?: string } | null }[] };
  return users?.find(({ name }) => name === userName)?.user?.tokenFile || undefined;
}

function checkProxy({ proxyUrl }: Cluster, fail: (problem: string) => Error): void {
  if (proxyUrl === undefined) return;
  const protocol = URL.parse(String(proxyUrl))?.protocol;
  if (protocol !== 'http:' && protocol !== 'https:') {
    throw fail('its proxy-url is not one of an HTTP proxy (http://… or https://…), the only kind that is supported');
  }
}

function absolute(path: string, directory: string): string {
  return isAbsolute(path) ? path : join(directory, path);
}

/** Reads certificate files each time; client-node caches the tokens of providers while they are valid. */
async function resolve(config: KubeConfig): Promise<RequestOptions> {
  const options: RequestOptions = {};
  try {
    await config.applyToHTTPSOptions(options);
  } catch (error) {
    // V8 quotes what it cannot parse, which may be a token.
    const reason =
      error instanceof SyntaxError ? 'its auth-provider gave something other than JSON' : causeMessage(error);
    throw new ApiError('credentials', `the kubeconfig gives no credentials: ${reason.trim()}`, { cause: error });
  }
  return options;
}

async function toAccess(
  options: RequestOptions,
  given: PluginCredentials | undefined,
  { config, server, readToken }: Loaded,
): Promise<Access> {
  // client-node sets each of these to the content of one file.
  const { ca, cert = given?.cert, key = given?.key } = options as Pick<TlsMaterial, 'ca' | 'cert' | 'key'>;
  const { servername: serverName, rejectUnauthorized, auth } = options;
  const headers: Record<string, string> = {};
  for (const [name, value] of Object.entries(options.headers ?? {})) headers[name] = headerValue(String(value).trim());
  if (typeof auth === 'string') headers['Authorization'] = `Basic ${Buffer.from(auth).toString('base64')}`;
  // What the kubeconfig itself says takes precedence over a plugin, and a token file over both, as in client-go.
  if (given?.token !== undefined) headers['Authorization'] ??= `Bearer ${headerValue(given.token.trim())}`;
  if (readToken !== undefined) headers['Authorization'] = `Bearer ${await readToken()}`;
  if (config.getCurrentUser()?.authProvider && headers['Authorization'] === undefined) {
    // The server would answer 403 to each anonymous request.
    throw new ApiError('credentials', 'the auth-provider of the kubeconfig gives no token');
  }
  const tls = { ca, cert, key, serverName, skipVerify: rejectUnauthorized === false };
  return { server, tls, headers, proxy: config.getCurrentCluster()?.proxyUrl };
}

/** Does not quote the value, which may be a token. */
function headerValue(value: string): string {
  if (/^[\x20-\x7e]*$/.test(value)) return value;
  throw new ApiError(
    'credentials',
    'the kubeconfig gives credentials with a line break or another character that no token has',
  );
}

/** Kubeadm's kubeconfig for kube-proxy may be read by anyone: it only names a token file. */
async function warnOfLooseFile({ path, log }: KubeconfigOptions, { config }: Loaded): Promise<void> {
  const user = config.getCurrentUser();
  const hasSecrets = [user?.token, user?.password, user?.keyData, user?.authProvider].some(Boolean);
  if (hasSecrets && ((await stat(path)).mode & 0o044) !== 0) {
    log.warn('The kubeconfig holds secrets and can be read by other users; chmod 600 it', { file: path });
  }
}
