import { takeTerminal } from '../../../../src/client/top/terminal-device.ts';

/** Takes the terminal and fails. */
const ignored = () => undefined;
takeTerminal(process.stdin, process.stdout, { onInput: ignored, onRepaint: ignored, onEnd: ignored });
process.stdout.write('DRAWN');
setImmediate(() => {
  throw new Error('for the test');
});
