import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { afterEach, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { type Environment, TCP, testEnvironment } from '../harness.ts';
import { FLAVOUR } from '../iptables.ts';
import { PROGRAM, ProxyProcess } from '../proxy.ts';
import { waitFor } from '../wait.ts';

const API_SERVER = fileURLToPath(new URL('../programs/api-server.ts', import.meta.url));
const API_PORT = 6_543;

const ERASE = '\r\x1b[2K';
const CTRL_C = '\x03';

/** The program on a terminal of its own. */
class OnTerminal {
  readonly #child: ChildProcess;
  #text = '';
  readonly ended: Promise<void>;

  constructor(environment: Environment, command: string, env: NodeJS.ProcessEnv = {}) {
    this.#child = environment.topology.node.spawn(['script', '-qec', command, '/dev/null'], { TERM: 'xterm', ...env });
    this.#child.stdout!.setEncoding('utf8').on('data', (text: string) => {
      this.#text += text;
    });
    this.ended = new Promise((resolve) => this.#child.on('close', () => resolve()));
  }

  get text(): string {
    return this.#text;
  }

  /** What stands on the screen: each line without what was erased of it. */
  get screen(): string[] {
    return this.#text.split('\r\n').map((line) => line.split(ERASE).at(-1) ?? '');
  }

  type(text: string): void {
    this.#child.stdin!.write(text);
  }

  kill(): void {
    this.#child.kill('SIGKILL');
  }
}

describe('progress of the start on a terminal', () => {
  const environment = testEnvironment();
  let terminal: OnTerminal | undefined;
  let api: ChildProcess | undefined;

  before(async () => {
    // Builds the program.
    await new ProxyProcess(environment.topology.node, ['--version']).exited();
  });

  afterEach(async () => {
    // The next test counts on nobody at its port.
    if (api?.kill('SIGKILL')) await once(api, 'exit');
    terminal?.kill();
    await environment.iptables.flush();
    environment.manifests.clear();
  });

  const start = (args: string, env?: NodeJS.ProcessEnv) => {
    terminal = new OnTerminal(environment, `${PROGRAM} --iptables-mode=${FLAVOUR} ${args}`, env);
    return terminal;
  };

  test('says when everything is ready, and ends at Ctrl-C', async () => {
    environment.write({
      name: 'web',
      clusterIP: '10.96.0.100',
      ports: [{ port: 80, target: TCP.name }],
      endpoints: [],
    });
    const shown = start(`--manifests ${environment.manifests.directory}`);
    await waitFor('the last line', () =>
      shown.screen.some((line) => /^Ready: 1 Service port in \d+\.\d s$/.test(line)),
    );
    shown.type(CTRL_C);
    await shown.ended;
    assert.ok(shown.screen.some((line) => / I Stopping; /.test(line)));
  });

  test('counts the seconds without the API server, between whole lines of the log', async () => {
    const shown = start(`--master=http://127.0.0.1:${API_PORT}`);
    const waiting = new RegExp(`Waiting for the API server 127\\.0\\.0\\.1:${API_PORT} \\([1-9]\\d* s\\)`);
    await waitFor('a second', () => waiting.test(shown.text));
    api = environment.topology.node.spawn([process.execPath, API_SERVER, String(API_PORT)]);
    await waitFor('the last line', () =>
      shown.screen.some((line) => /^Ready: 1 Service port in \d+\.\d s$/.test(line)),
    );
    shown.type(CTRL_C);
    await shown.ended;
    const lines = shown.screen.filter((line) => line !== '' && line !== '^C');
    const odd = lines.filter((line) => !/^(?:\^C)?\d\d:\d\d:\d\d\.\d{3} [EWI] |^Ready: /.test(line));
    assert.deepEqual(odd, []);
  });
});
