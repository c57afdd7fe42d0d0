import { execFileSync } from 'node:child_process';
import { takeTerminal } from '../../../../src/client/top/terminal-device.ts';

/** Takes the terminal, gives it back, and says how it is set then. */
const ignored = () => undefined;
const giveBack = takeTerminal(process.stdin, process.stdout, { onInput: ignored, onRepaint: ignored, onEnd: ignored });
giveBack();
execFileSync('stty', ['-g'], { stdio: 'inherit' });
