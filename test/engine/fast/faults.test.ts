import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { type TestContext, test } from 'node:test';
import { waitFor } from '../../netns/wait.ts';
import { PatternReceiver, PatternSender } from '../../support/pattern.ts';
import { connectSocket, TcpBackend } from '../../support/tcp.ts';
import { ChildProgram } from './child-program.ts';

const BYTES = 48 << 20;
const missing = spawnSync('strace', ['-V']).error === undefined ? false : 'strace is not installed';

/**
 * Runs the data plane under strace, which lets system calls fail as told. Transfers both ways at once, and compares.
 */
async function transferUnder(t: TestContext, injection: string): Promise<void> {
  let backendSide: PatternReceiver | undefined;
  const backend = await TcpBackend.raw(t, async (socket) => {
    backendSide = new PatternReceiver(socket);
    await new PatternSender(socket).send(BYTES);
    socket.end();
  });
  const plane = await ChildProgram.start(t, 'small-plane.ts', {
    args: [backend.endpoint.port],
    wrapper: ['strace', '-f', '-qq', '-o', '/dev/null', '-e', `inject=${injection}`],
  });
  const client = await connectSocket(plane.port);
  const received = new PatternReceiver(client);
  await new PatternSender(client).send(BYTES);
  client.end();
  for (const receiver of [received, backendSide]) {
    await waitFor('the last byte', () => receiver?.receivedBytes === BYTES, 300_000);
    assert.ok(receiver?.isIntact);
  }
}

for (const [what, injection] of [
  // The first two are those of the self-check.
  ['every splice is refused', 'splice:error=EINVAL:when=3+'],
  ['a splice fails now and then', 'splice:error=EIO:when=5+7'],
] as const) {
  test(`no byte is lost or doubled when ${what}`, { skip: missing, timeout: 600_000 }, (t) =>
    transferUnder(t, injection),
  );
}
