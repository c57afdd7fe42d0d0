import '../support/private-netns.ts';
import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { AS_CONTAINER } from '../support/processes.ts';

const PROGRAM = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const HOLDER = `require('net').createServer().listen({ path: '\\0kube-userspace-proxy' }, () => console.log('there'))`;
/** As where its addon cannot be loaded. */
const HOOKS = `{ resolve: (name, at, next) => { if (name === 'koffi') throw new Error('no koffi'); return next(name, at); } }`;
const WITHOUT_KOFFI = `data:text/javascript,import { registerHooks } from 'node:module'; registerHooks(${HOOKS});`;

/** What the probe says in the PID namespace of this process, or in another one. */
function probe(through: readonly string[] = [], options: readonly string[] = []) {
  const [file = '', ...args] = [...through, process.execPath, ...options, PROGRAM, 'probe'];
  const { status, stdout } = spawnSync(file, args, { encoding: 'utf8' });
  return { status, said: stdout.trim().replace(/process \d+/, 'process N') };
}

/** Somebody who holds the claim of the node, in the PID namespace of this process. */
async function holder(through: readonly string[] = []): Promise<ChildProcess> {
  const [file = '', ...args] = [...through, process.execPath, '-e', HOLDER];
  const child = spawn(file, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  await once(child.stdout as NonNullable<typeof child.stdout>, 'data');
  return child;
}

async function end(child: ChildProcess): Promise<void> {
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
}

test('a container has started when the proxy that serves the node is one of its processes', async (t) => {
  assert.deepEqual(probe(), { status: 1, said: 'nobody serves this node' });
  const proxy = await holder();
  t.after(() => end(proxy));
  assert.deepEqual(probe(), { status: 0, said: 'process N serves this node' });
  assert.deepEqual(probe(AS_CONTAINER), { status: 1, said: 'a process of another container serves this node' });
});

test('where nobody can tell, no Pod is started again for ever', async (t) => {
  const stranger = await holder(['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups']);
  t.after(() => end(stranger));
  const unknown = 'so nobody can tell who serves this node';
  assert.deepEqual(probe(AS_CONTAINER), { status: 0, said: `user 65534 holds the name of the proxy, ${unknown}` });
  const said = `system calls do not work here, ${unknown}`;
  assert.deepEqual(probe(AS_CONTAINER, ['--import', WITHOUT_KOFFI]), { status: 0, said });
});
