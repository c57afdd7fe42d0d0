import { isAbsolute, join } from 'node:path';
import type { Cluster } from '@kubernetes/client-node';
import type { Clock } from '../util/clock.ts';
import { type ProgramRequest, runProgram } from '../util/run-program.ts';
import { Field, isObject, parseJson } from '../util/untrusted.ts';
import { ApiError, causeMessage } from './api-error.ts';

/** How long a plugin or an OIDC provider may take. */
export const CREDENTIALS_DEADLINE_MS = 30_000;

/** Far more than a token and a certificate. */
const OUTPUT_MAX_BYTES = 1024 * 1024;

/** A token, a client certificate with its key, or both. */
export interface PluginCredentials {
  readonly token: string | undefined;
  readonly cert: string | undefined;
  readonly key: string | undefined;
}

interface Answer extends PluginCredentials {
  /** Milliseconds since 1970. */
  readonly expiresAt: number;
}

interface ExecPluginOptions {
  /** The `exec` of the kubeconfig's user. */
  readonly exec: unknown;
  readonly cluster: Cluster;
  /** Of the kubeconfig: a relative command starts there. */
  readonly directory: string;
  readonly clock: Clock;
}

/**
 * The exec plugin of a kubeconfig's user (kubernetes.io, "client-go credential plugins"). Not client-node's: it keeps
 * an answer without credentials and never asks again, waits without end for a plugin that hangs, leaves the plugin's
 * standard input open, and does not set `KUBERNETES_EXEC_INFO`.
 */
export class ExecPlugin {
  readonly #command: Command;
  readonly #clock: Clock;
  #answer: Answer | undefined;
  /** The run that is under way, so that requests at the same time share one. */
  #run: Promise<Answer> | undefined;

  /** Throws a FieldError when `exec` cannot be used. */
  constructor({ exec, cluster, directory, clock }: ExecPluginOptions) {
    this.#command = readCommand(exec, cluster, directory);
    this.#clock = clock;
  }

  /** Runs the plugin when its last answer has expired. Rejects with an {@link ApiError} `credentials`. */
  async credentials(): Promise<PluginCredentials> {
    if (this.#answer !== undefined && this.#answer.expiresAt > this.#clock.wallNow()) return this.#answer;
    this.#run ??= run(this.#command, this.#clock)
      .then((output) => {
        this.#answer = readAnswer(output);
        return this.#answer;
      })
      .catch((error: unknown) => {
        throw new ApiError('credentials', `the exec plugin gives no credentials: ${causeMessage(error).trim()}`);
      })
      .finally(() => {
        this.#run = undefined;
      });
    return await this.#run;
  }

  /** The server refused the last answer, so the plugin runs again. */
  refused(): void {
    this.#answer = undefined;
  }
}

interface Command extends ProgramRequest {
  readonly env: NodeJS.ProcessEnv;
}

function readCommand(exec: unknown, cluster: Cluster, directory: string): Command {
  const field = Field.root(exec);
  const command = field.get('command').string();
  const args = field.get('args').items();
  const clusterInfo = {
    server: cluster.server,
    'certificate-authority-data': cluster.caData,
    'tls-server-name': cluster.tlsServerName,
    'insecure-skip-tls-verify': cluster.skipTLSVerify,
  };
  const info = {
    kind: 'ExecCredential',
    apiVersion: field.get('apiVersion').value,
    spec: { interactive: false, cluster: field.get('provideClusterInfo').booleanOr(false) ? clusterInfo : undefined },
  };
  // A value may be a secret, so an error never names it.
  const added = field.get('env').items();
  return {
    program: command.includes('/') && !isAbsolute(command) ? join(directory, command) : command,
    args: args.map((each) => each.string()),
    env: {
      ...process.env,
      ...Object.fromEntries(added.map((each) => [each.get('name').string(), String(each.get('value').value ?? '')])),
      KUBERNETES_EXEC_INFO: JSON.stringify(info),
    },
  };
}

/** Gives what the plugin prints. It has nothing to read, as client-go. */
async function run({ env, ...command }: Command, clock: Clock): Promise<string> {
  const limits = { timeoutMs: CREDENTIALS_DEADLINE_MS, maxOutputBytes: OUTPUT_MAX_BYTES };
  const result = await runProgram(command, { clock, env, ...limits });
  if (result.outcome === 'missing') throw new Error(`there is no program ${JSON.stringify(command.program)}`);
  if (result.outcome === 'timeout') throw new Error(`it did not end within ${CREDENTIALS_DEADLINE_MS / 1_000} s`);
  if (result.outcome === 'failed') throw new Error(result.err);
  const { code, signal, stdout, stderr } = result;
  if (code === 0) return utf8(stdout);
  throw new Error(utf8(stderr).trim() || `it ended with ${code ?? signal}`);
}

function utf8(bytes: string): string {
  return Buffer.from(bytes, 'latin1').toString();
}

/** Errors never quote the answer, which may have a token. */
function readAnswer(output: string): Answer {
  const answer = parseJson(output);
  if (answer === undefined) throw new Error('its output is not JSON');
  const status = isObject(answer) && isObject(answer['status']) ? answer['status'] : {};
  const textOf = (name: string) => {
    const value = status[name];
    return typeof value === 'string' && value !== '' ? value : undefined;
  };
  const [token, cert, key] = ['token', 'clientCertificateData', 'clientKeyData'].map(textOf);
  if (token === undefined && cert === undefined) throw new Error('its answer has neither a token nor a certificate');
  if ((cert === undefined) !== (key === undefined)) throw new Error('its answer has a certificate or a key alone');
  const expiry = status['expirationTimestamp'] ?? undefined;
  // biome-ignore lint/style/noRestrictedGlobals: reads a text, not the clock
  const expiresAt = expiry === undefined ? Number.POSITIVE_INFINITY : Date.parse(String(expiry));
  if (Number.isNaN(expiresAt)) throw new Error('its answer has an expirationTimestamp that is not a time');
  return { token, cert, key, expiresAt };
}
