import { Worker } from 'node:worker_threads';
import { Channel } from '../../../src/upgrade/channel.ts';

/*
 * The program itself, with a fault during a hand-over. `KUP_TEST_FAULT` is `before` or `after`, the kind of the message
 * that it is about to send or has just sent, and the signal that it then gets, such as `after owning SIGKILL`. Or it is
 * `worker` and the kind of a command: the worker that is to get that command dies. A successor that it starts has no
 * fault.
 */
const [when, kind, signal] = process.env['KUP_TEST_FAULT']?.split(' ') ?? [];
delete process.env['KUP_TEST_FAULT'];

const { send } = Channel.prototype;
const fail = () => process.kill(process.pid, signal);

Channel.prototype.send = async function (...args) {
  const [message] = args;
  if (message.kind === kind && when === 'before') fail();
  await send.apply(this, args);
  if (message.kind === kind && when === 'after') fail();
};

const { postMessage } = Worker.prototype;

Worker.prototype.postMessage = function (...args: Parameters<typeof postMessage>) {
  const commands: readonly { readonly kind: string }[] = args[0];
  if (when === 'worker' && commands.some((command) => command.kind === kind)) void this.terminate();
  else postMessage.apply(this, args);
};

await import('../../../src/main.ts');
