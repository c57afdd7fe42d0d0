import { spawn } from 'node:child_process';
import { isAbsolute, join } from 'node:path';
import type { Cluster } from '@kubernetes/client-node';
import type { Clock } from '../util/clock.ts';
import { Field, isObject, parseJson } from '../util/untrusted.ts';
import { ApiError, causeMessage } from './api-error.ts';

/** How long a plugin or an OIDC provider may take. */
export const CREDENTIALS_DEADLINE_MS = 30_000;

/** Far more than a token and a certificate. */
const OUTPUT_MAX_CHARACTERS = 1024 * 1024;

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
 * an answer without credentials for ever, waits for ever for a plugin that hangs, leaves the plugin's standard input
 * open, and does not set `KUBERNETES_EXEC_INFO`.
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

interface Command {
  readonly file: string;
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
}

function readCommand(exec: unknown, cluster: Cluster, directory: string): Command {
  const field = Field.root(exec);
  const command = field.get('command').string();
  const clusterInfo = {
    server: cluster.server,
    'certificate-authority-data': cluster.caData,
    'tls-server-name': cluster.tlsServerName,
    'insecure-skip-tls-verify': cluster.skipTLSVerify,
  };
  const info = {
    kind: 'ExecCredential',
    apiVersion: field.get('apiVersion').value,
    spec: {
      interactive: false,
      cluster: field.get('provideClusterInfo').booleanOr(false) ? clusterInfo : undefined,
    },
  };
  // A value may be a secret, so an error never names it.
  const added = field.get('env').items();
  return {
    file: command.includes('/') && !isAbsolute(command) ? join(directory, command) : command,
    args: field
      .get('args')
      .items()
      .map((each) => each.string()),
    env: {
      ...process.env,
      ...Object.fromEntries(added.map((each) => [each.get('name').string(), String(each.get('value').value ?? '')])),
      KUBERNETES_EXEC_INFO: JSON.stringify(info),
    },
  };
}

/** Resolves with what the program prints. A program that does not end in time is killed. */
function run({ file, args, env }: Command, clock: Clock): Promise<string> {
  return new Promise((resolve, reject) => {
    // In a group of its own, so that a script does not leave behind what it waits for. Nothing to read, as client-go.
    const child = spawn(file, args, { env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
    const { pid, stdout, stderr } = child;
    let output = '';
    let complaint = '';
    const giveUp = (reason: string) => {
      deadline.cancel();
      reject(new Error(reason));
      // Something that it has started may hold them open for longer than the plugin lives.
      stdout?.destroy();
      stderr?.destroy();
      // After its end the number may be another group's.
      if (pid !== undefined && child.exitCode === null && child.signalCode === null) killGroup(pid);
    };
    const deadline = clock.after(CREDENTIALS_DEADLINE_MS, () =>
      giveUp(`it did not end within ${CREDENTIALS_DEADLINE_MS / 1_000} s`),
    );
    // They are missing when no descriptor is left; the error follows.
    stdout?.setEncoding('utf8').on('data', (text: string) => {
      output += text;
      if (output.length > OUTPUT_MAX_CHARACTERS) giveUp('it prints too much');
    });
    stderr?.setEncoding('utf8').on('data', (text: string) => {
      complaint = (complaint + text).slice(0, OUTPUT_MAX_CHARACTERS);
    });
    child.on('error', (error) => {
      deadline.cancel();
      reject(error);
    });
    child.on('close', (code, signal) => {
      deadline.cancel();
      if (code === 0) resolve(output);
      else reject(new Error(complaint.trim() || `it ended with ${code ?? signal}`));
    });
  });
}

function killGroup(leader: number): void {
  try {
    process.kill(-leader, 'SIGKILL');
  } catch {
    // It runs as another user, whose programs this process may not end.
  }
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
