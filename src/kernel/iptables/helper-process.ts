import { type ChildProcessByStdio, spawn } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import type { Clock, Timer } from '../../util/clock.ts';
import type { ExecRequest, ExecResult } from './exec.ts';
import { MessageReader } from './helper/messages.ts';
import { decodeResult, encodeRequest } from './helper/protocol.ts';
import type { HelperCommand } from './helper-command.ts';

/** The helper keeps a program's deadline. This much later it is no longer the program that hangs, but the helper. */
const GRACE_MS = 5000;

/** The reason why a process ended comes last in what it says. */
const MAX_STDERR = 2048;

export interface HelperProcessOptions {
  readonly command: HelperCommand;
  readonly clock: Clock;
  /** Called once, and after the constructor has returned. */
  readonly onGone: (why: string) => void;
}

/** One life of the helper process. It answers one request at a time. */
export class HelperProcess {
  readonly #clock: Clock;
  readonly #onGone: (why: string) => void;
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>;
  #answer: ((result: ExecResult) => void) | undefined;
  #watchdog: Timer | undefined;
  #said = '';
  /** Why it is not there any more. */
  #gone: string | undefined;

  constructor({ command, clock, onGone }: HelperProcessOptions) {
    this.#clock = clock;
    this.#onGone = onGone;
    // In a session of its own: a ^C at our terminal must not reach it while it runs a transaction.
    const { file, args, argv0 } = command;
    const child = spawn(file, args, { detached: true, ...(argv0 !== undefined && { argv0 }) });
    this.#child = child;
    child.on('error', (error) => this.#end(error.message));
    // Not started, and the error event is on its way; out of descriptors there are not even the three streams.
    if (child.pid === undefined) return;
    const reader = new MessageReader((message) => this.#settle(decodeResult(message)));
    child.stdout.on('data', (chunk: Buffer) => {
      try {
        reader.push(chunk);
      } catch (error) {
        this.#kill(`it said what nobody understands: ${error instanceof Error ? error.message : error}`);
      }
    });
    child.stderr.setEncoding('latin1').on('data', (text: string) => {
      this.#said = (this.#said + text).slice(-MAX_STDERR);
    });
    child.on('close', (code, signal) => this.#end(`it ended ${signal === null ? `with ${code}` : `by ${signal}`}`));
    // It has ended, which the close event will say.
    child.stdin.on('error', () => {});
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  run(request: ExecRequest, timeoutMs: number): Promise<ExecResult> {
    return new Promise((resolve) => {
      this.#answer = resolve;
      if (this.#gone !== undefined) return this.#fail(this.#gone);
      this.#watchdog = this.#clock.after(timeoutMs + GRACE_MS, () => this.#kill('it did not answer in time'));
      if (this.#child.pid === undefined) return;
      for (const piece of encodeRequest(request, timeoutMs)) this.#child.stdin.write(piece);
    });
  }

  /** It ends once the program that it runs has ended. */
  close(): void {
    this.#child.stdin?.end();
  }

  /** Without waiting for the end of it, which never comes for a process that hangs inside the kernel. */
  #kill(why: string): void {
    this.#child.kill('SIGKILL');
    for (const stream of this.#child.stdio) stream?.destroy();
    this.#child.unref();
    this.#end(why);
  }

  #end(why: string): void {
    if (this.#gone !== undefined) return;
    const said = this.#said.replace(/\s+/g, ' ').trim();
    this.#gone = said === '' ? why : `${why}: ${said}`;
    this.#fail(this.#gone);
    this.#onGone(this.#gone);
  }

  #fail(why: string): void {
    this.#settle({ outcome: 'failed', err: `the helper process that starts programs is gone; ${why}` });
  }

  #settle(result: ExecResult): void {
    this.#watchdog?.cancel();
    const answer = this.#answer;
    this.#answer = undefined;
    answer?.(result);
  }
}
