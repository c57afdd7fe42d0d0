import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { TCP, testEnvironment } from '../harness.ts';
import { FLAVOUR } from '../iptables.ts';
import { buildOnce, PROGRAM } from '../proxy.ts';
import { waitFor } from '../wait.ts';

const ERASE = '\r\x1b[2K';
const CTRL_C = '\x03';

const environment = testEnvironment();

test('on a terminal, a start ends with a line that says when all is ready; the log has whole lines; Ctrl-C stops', async (t) => {
  buildOnce();
  environment.write({ name: 'web', clusterIP: '10.96.0.100', ports: [{ port: 80, target: TCP.name }], endpoints: [] });
  const command = `${PROGRAM} --iptables-mode=${FLAVOUR} --manifests ${environment.manifests.directory}`;
  const terminal = environment.topology.node.spawn(['script', '-qec', command, '/dev/null'], { TERM: 'xterm' });
  t.after(() => terminal.kill('SIGKILL'));
  let text = '';
  terminal.stdout!.setEncoding('utf8').on('data', (more: string) => {
    text += more;
  });
  /** What stands on the screen: each line without what was erased of it. */
  const screen = () => text.split('\r\n').map((line) => line.split(ERASE).at(-1) ?? '');
  const ready = /^Ready: 1 Service port in \d+\.\d s$/;
  await waitFor('the last line', () => screen().some((line) => ready.test(line)));
  const closed = once(terminal, 'close');
  terminal.stdin!.write(CTRL_C);
  await closed;
  assert.ok(screen().some((line) => / I Stopping; /.test(line)));
  const lines = screen().filter((line) => line !== '' && line !== '^C');
  assert.deepEqual(
    lines.filter((line) => !/^(?:\^C)?\d\d:\d\d:\d\d\.\d{3} [EWI] /.test(line) && !ready.test(line)),
    [],
  );
});
