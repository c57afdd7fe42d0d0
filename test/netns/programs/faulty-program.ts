import { Channel } from '../../../src/handover/channel.ts';

/*
 * The program itself, which is sent a signal in the middle of a hand-over: `KUP_TEST_FAULT` is `before` or `after`, the kind
 * of the message that it is about to send or has just sent, and the signal, such as `after owning SIGKILL`. A successor
 * that it starts knows nothing of that.
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

await import('../../../src/main.ts');
