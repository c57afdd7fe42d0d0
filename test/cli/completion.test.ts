import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { COMMANDS } from '../../src/app/subcommands.ts';
import { COMPLETION } from '../../src/cli/completion.ts';
import { parse, runProgram } from '../../src/cli/parser.ts';
import { type Endpoint, endpointOf } from '../../src/model/endpoint.ts';
import { servicePortName } from '../../src/model/service.ts';
import type { ServiceFilter, ServiceView } from '../../src/model/view.ts';
import { FakeView } from '../fakes/fake-view.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { folder, served } from '../operate/control/served.ts';
import { controlOf } from './control-of.ts';
import { PseudoTerminal } from './pseudo-terminal.ts';
import { RecordingTerminal } from './recording-terminal.ts';
import { runCommand } from './run-command.ts';

const NAME = 'kube-userspace-proxy';

/** Its first Service has one port with a name, and an endpoint of each family. */
class Dual extends FakeView {
  override *services(filter?: ServiceFilter): Iterable<ServiceView> {
    const [first] = super.services(filter) as Iterable<ServiceView>;
    const [listener] = first?.listeners ?? [];
    const [endpoint] = listener?.endpoints ?? [];
    if (first === undefined || listener === undefined || endpoint === undefined) throw new Error('no endpoint');
    const endpoints = ['10.244.1.11:8080', '[fd00:244::1]:8080'].map((text) => ({
      ...endpoint,
      endpoint: endpointOf(text) as Endpoint,
    }));
    yield {
      ...first,
      name: servicePortName('shop/dual', 'http'),
      namespace: 'shop',
      listeners: [{ ...listener, endpoints }],
    };
  }
}

async function scriptFor(...argv: string[]): Promise<string> {
  const terminal = new RecordingTerminal();
  const tools = { clock: new ManualClock(), connect: () => controlOf(new FakeView()), onInterrupt: () => () => {} };
  await runCommand(COMPLETION, argv, terminal, tools);
  return terminal.printed;
}

/** All that is offered for these words, with what the proxy at this socket knows. */
async function offered(words: readonly string[], view = new FakeView(), connected: (path: string) => void = () => {}) {
  const terminal = new RecordingTerminal();
  const connect = (path: string) => {
    connected(path);
    return controlOf(view);
  };
  const tools = { clock: new ManualClock(), connect, onInterrupt: () => () => {} };
  const argv = ['--get-yargs-completions', NAME, ...words];
  await runProgram(argv, { commands: COMMANDS, run: async () => 1, terminal, tools });
  return terminal.printed.split('\n').filter((line) => line !== '' && !line.startsWith('-'));
}

/** What bash offers behind these words, of which the last may be half of one. */
async function complete(...words: readonly string[]): Promise<string[]> {
  const script = `
    ${NAME}() { printf '%s' "$OFFERED"; }
    ${await scriptFor('bash')}
    COMP_LINE="${NAME} $*" COMP_POINT=1000
    _kube_userspace_proxy ${NAME} "\${!#}"
    printf '%s\\n' "\${COMPREPLY[@]}"`;
  const env = { ...process.env, OFFERED: `${parse(['--get-yargs-completions', NAME, ...words], COMMANDS).output}\n` };
  return execFileSync('bash', ['-c', script, 'bash', ...words], { encoding: 'utf8', env })
    .split('\n')
    .filter(Boolean);
}

const skip = process.env['SHELL']?.includes('zsh');

test('bash completes commands, flags, and the values of a flag', { skip }, async () => {
  assert.deepEqual(await complete('li'), ['list']);
  assert.deepEqual(await complete('drain', 'x'), []);
  assert.deepEqual(await complete('--iptables-m'), ['--iptables-mode', '--iptables-min-sync-period']);
  assert.deepEqual(await complete('--dataplane', ''), ['auto', 'fast', 'node']);
  assert.deepEqual(await complete('list', '-o', ''), ['table', 'wide', 'json']);
  assert.deepEqual(await complete('list', '--ou'), ['--output']);
  assert.ok((await complete('check', '--')).includes('--dataplane'));
  assert.ok(!(await complete('list', '--')).includes('--dataplane'));
});

test('a bash at a terminal completes words with colons, from the proxy at either form of --control-socket', async (t) => {
  const { path } = await served(t, new Dual());
  const directory = folder(t);
  const rc = join(directory, 'rc');
  const program = `${NAME}() { if [[ $1 == --get* ]]; then "$NODE" src/main.ts "$@"; else echo "LAST=\${!#}."; fi; }`;
  writeFileSync(rc, `PS1='> '\nbind 'set enable-bracketed-paste off'\n${program}\n${await scriptFor('bash')}`);
  const starter = join(directory, 'bash.mjs');
  writeFileSync(
    starter,
    `import { spawnSync } from 'node:child_process';
     spawnSync('bash', ['--noprofile', '--rcfile', ${JSON.stringify(rc)}, '-i'], { stdio: 'inherit' });`,
  );
  const terminal = new PseudoTerminal(t, starter, { columns: 200 });
  await terminal.has('> ');
  const cases = {
    '10.244.1.11:80': '10.244.1.11:8080',
    '10.244.1.11:': '10.244.1.11:8080',
    '10.24': '10.244.1.11:8080',
    '[fd00:244::1': '[fd00:244::1]:8080',
    'shop/dual:': 'shop/dual:http',
    'shop/d': 'shop/dual',
  };
  for (const [typed, expected] of Object.entries(cases)) {
    for (const flag of [`--control-socket ${path}`, `--control-socket=${path}`]) {
      const from = terminal.written.length;
      terminal.type(`${NAME} drain ${flag} ${typed}\t\n`);
      await terminal.has('LAST=', from);
      await terminal.has('.\r\n', terminal.written.indexOf('LAST=', from));
      assert.ok(terminal.written.includes(`LAST=${expected}.`, from), `${typed}: ${terminal.written.slice(from)}`);
    }
  }
  terminal.type('exit\n');
});

describe('names of what is served', () => {
  test('are offered, those of the kinds that the command takes', async () => {
    assert.deepEqual(await offered(['explain', '']), ['default/web', 'kube-system/dns', 'shop/empty']);
    assert.deepEqual(await offered(['list', 'def']), ['default', 'default/web']);
    assert.deepEqual((await offered(['drain', '10.244.0.'])).length, 3);
    assert.deepEqual(await offered(['weight', 'default']), []);
    assert.deepEqual(await offered(['log-level', '']), []);
    assert.deepEqual(await offered(['explain', '--from', '']), []);
  });

  test('have ports behind a colon: their names, or numbers where they have none', async () => {
    assert.deepEqual(await offered(['list', 'default/web:']), ['default/web:http']);
    const [port] = [...new FakeView().services()].filter(({ name }) => name === 'shop/empty').map((each) => each.port);
    assert.deepEqual(await offered(['list', 'shop/empty:']), [`shop/empty:${port}`]);
  });

  test('come from the socket that the command has', async () => {
    for (const flag of [['--control-socket', '/a/b'], ['--control-socket=/a/b']]) {
      const asked: string[] = [];
      await offered(['drain', ...flag, ''], new FakeView(), (path) => asked.push(path));
      assert.deepEqual(asked, ['/a/b'], flag.join(' '));
    }
  });
});

test('a short option is not offered as a long one', async () => {
  const { output = '' } = parse(['--get-yargs-completions', 'kube-userspace-proxy', 'list', '--'], COMMANDS);
  assert.match(output, /^--w$/m, 'yargs does that');
  const terminal = new RecordingTerminal();
  const tools = { clock: new ManualClock(), connect: () => controlOf(new FakeView()), onInterrupt: () => () => {} };
  const argv = ['--get-yargs-completions', 'kube-userspace-proxy', 'list', '--'];
  await runProgram(argv, { commands: COMMANDS, run: async () => 1, terminal, tools });
  assert.match(terminal.printed, /^--watch$/m);
  assert.doesNotMatch(terminal.printed, /^--\w$/m);
});

describe('completion', () => {
  test('prints the script for the shell that is named, and names those there are', async () => {
    assert.match(await scriptFor('bash'), /^complete .* kube-userspace-proxy$/m);
    assert.match(await scriptFor('zsh'), /^#compdef kube-userspace-proxy\n/);
    assert.match(await scriptFor('fish'), /^complete -f -c kube-userspace-proxy /);
    await assert.rejects(scriptFor('foo'), /^UsageError: "foo": must be bash, zsh or fish$/);
    await assert.rejects(scriptFor('toString'), /must be bash, zsh or fish/);
  });

  test('has help', () => {
    assert.match(
      parse(['completion', '--help'], COMMANDS).output ?? '',
      /^Usage: .* completion \[options\] \[SHELL\]\n/,
    );
  });
});
