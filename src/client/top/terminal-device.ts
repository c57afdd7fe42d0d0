import type { ReadStream, WriteStream } from 'node:tty';
import { ENTER, LEAVE } from './screen.ts';

export interface DeviceEvents {
  /** What was typed. */
  readonly onInput: (text: string) => void;
  /** Nothing that was on the screen can be relied on: it was resized, or other programs have used it. */
  readonly onRepaint: () => void;
  /** The program is to end, with this exit code. */
  readonly onEnd: (code: number) => void;
}

/** By convention of shells, 128 and the signal's number. */
const ENDING: readonly (readonly [signal: NodeJS.Signals, code: number])[] = [
  ['SIGINT', 130],
  ['SIGTERM', 143],
  ['SIGHUP', 129],
];
const CTRL_Z = '\u001a';

/**
 * Takes the terminal for itself: keys come one by one and are not echoed, and what is shown does not scroll away what
 * was there. It is given back by what this returns, and however the process ends, but by SIGKILL.
 */
export function takeTerminal(input: ReadStream, output: WriteStream, events: DeviceEvents): () => void {
  let isTaken = false;
  const take = () => {
    isTaken = true;
    input.setRawMode(true);
    output.write(ENTER);
  };
  const giveBack = () => {
    if (!isTaken) return;
    isTaken = false;
    input.setRawMode(false);
    output.write(LEAVE);
  };
  const onContinue = () => {
    take();
    events.onRepaint();
  };
  const onData = (text: string) => {
    if (text !== CTRL_Z) return events.onInput(text);
    giveBack();
    process.kill(process.pid, 'SIGTSTP');
    // Stopped until `fg`; but where no shell would bring it back, the kernel does not stop it.
    onContinue();
  };
  const onInputEnd = () => events.onEnd(0);
  const enders = ENDING.map(([signal, code]) => [signal, () => events.onEnd(code)] as const);

  take();
  input.setEncoding('utf8').on('data', onData).on('end', onInputEnd);
  output.on('resize', events.onRepaint);
  process.on('SIGCONT', onContinue);
  for (const [signal, end] of enders) process.on(signal, end);
  // Also when something is thrown, and before that is printed: it would be lost with the screen that it is printed on.
  process.on('exit', giveBack);
  return () => {
    giveBack();
    input.off('data', onData).off('end', onInputEnd).pause();
    output.off('resize', events.onRepaint);
    process.off('SIGCONT', onContinue);
    for (const [signal, end] of enders) process.off(signal, end);
    process.off('exit', giveBack);
  };
}
