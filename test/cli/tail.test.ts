import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { connectControl } from '../../src/cli/client.ts';
import { TAIL } from '../../src/cli/tail.ts';
import { MAX_TAILS } from '../../src/http/api-routes.ts';
import { entryLine, missingLine } from '../../src/operate/connection-log/line.ts';
import { FakeView } from '../fakes/fake-view.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { entry } from '../operate/connection-log/entries.ts';
import { all, controlServer, httpRequest, RawClient, served } from '../operate/control/served.ts';
import { until } from '../support/until.ts';
import { RecordingTerminal } from './recording-terminal.ts';
import { runCommand } from './run-command.ts';

const FOLLOW = httpRequest('/v1/tail');
const [DNS] = [...new FakeView().services({ namespace: 'kube-system', service: 'dns' })];

/** Runs until it is interrupted. */
function follow(t: TestContext, path: string, ...argv: string[]) {
  const terminal = new RecordingTerminal();
  const clock = new ManualClock();
  let interrupt = () => {};
  const code = runCommand(TAIL, argv, terminal, {
    clock,
    connect: () => connectControl(path, clock),
    onInterrupt: (handler) => {
      interrupt = handler;
      return () => {};
    },
  });
  code.catch(() => {});
  t.after(() => interrupt());
  return { terminal, clock, code, interrupt: () => interrupt() };
}

test('prints the connections of one Service as they end, until Ctrl-C', async (t) => {
  assert.ok(DNS);
  const { path, dataPlane, server, clock } = await served(t, new FakeView({ services: 250 }));
  const text = follow(t, path, 'kube-system/dns');
  const json = follow(t, path, 'kube-system/dns:dns', '-o', 'json');
  await until('the first follows', () => text.terminal.printed.includes('Service\n'));
  const [own, other] = [entry({ name: DNS.name }), entry({ name: 'default/web:http' })];
  await until('both follow', () => {
    dataPlane.connectionLog?.ended([other, own]);
    return json.terminal.printed !== '';
  });
  assert.match(text.terminal.printed, /^Time .*\n(.* client-end .* kube-system\/dns:dns\n)+$/);
  assert.equal(json.terminal.printed.replaceAll(entryLine(own), ''), '');
  dataPlane.connectionLog?.lost(3);
  await until('both say so', () => [text, json].every(({ terminal }) => terminal.printed.includes('missing')));
  assert.match(text.terminal.printed, /-- 3 connections are missing here: .* --\n$/);
  assert.ok(json.terminal.printed.endsWith(missingLine(3, clock.wallNow())));
  for (const { interrupt, code } of [text, json]) {
    interrupt();
    assert.equal(await code, 0);
  }
  await server.close();
  await until('nobody wants entries', () => dataPlane.connectionLog === undefined);
});

test('a Service that does not exist, and one reader too many, are refused with a sentence', async (t) => {
  const { path, control } = await served(t, new FakeView());
  await assert.rejects(
    follow(t, path, 'kube-system/dns:nothing').code,
    /^ControlError: no Service that this node serves matches kube-system\/dns:nothing: names must match exactly/,
  );
  const clients = Array.from({ length: MAX_TAILS }, () => new RawClient(t, path, FOLLOW));
  await until('all follow', () => clients.every(({ text }) => text !== ''));
  await assert.rejects(all(control.ask('tail', {})), /4 others follow the connections already; end one/);
  clients[0]?.socket.destroy();
  for (let text = ''; !text.includes(' 200 OK'); ) {
    const client = new RawClient(t, path, FOLLOW);
    await until('an answer', () => client.text !== '');
    text = client.text;
  }
});

test('goes on when the proxy comes back, and ends when it stays away', async (t) => {
  const first = await served(t);
  const { path } = first;
  const { terminal, clock, code } = follow(t, path);
  await until('it follows', () => terminal.printed !== '');
  await first.server.close();
  await until('it says so', () => terminal.complained.includes('trying again for 30 s'));
  const { server, dataPlane } = controlServer(t, path);
  server.start();
  await until('it follows again', () => {
    clock.advance(500);
    return terminal.complained.includes('Following the proxy again');
  });
  dataPlane.connectionLog?.ended([entry()]);
  await until('the line', () => terminal.printed.includes('client-end'));
  await server.close();
  const ended = code.then(() => 'well', String);
  let outcome = '';
  void ended.then((how) => {
    outcome = how;
  });
  await until('it gives up', () => {
    clock.advance(500);
    return outcome !== '';
  });
  assert.match(outcome, /ControlError: no proxy serves/);
});
