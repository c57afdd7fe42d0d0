import type { Clock } from '../../util/clock.ts';
import type { Log } from '../../util/log.ts';
import { printable } from '../../util/text.ts';
import type { StatusLine } from './output.ts';

/** The progress of the start, up to the first time that every rule is installed. */
export interface StartProgress {
  /** Where Services come from; `undefined` with manifests. */
  readonly api: { readonly server: string; readonly hasAnswered: boolean } | undefined;
  /** Everything that exists has been delivered once. */
  readonly isSynced: boolean;
  /** Services for which no listener has been requested yet. */
  readonly pendingServices: number;
  /** Service ports that need a listener, and listeners that are open. */
  readonly wantedPorts: number;
  readonly openListeners: number;
  /** The rules of every family are installed. */
  readonly isReady: boolean;
}

/** A start that is shorter than this shows only its end. */
const FIRST_MS = 300;
const REDRAW_MS = 100;

interface ShownStart {
  readonly line: Pick<StatusLine, 'isTTY' | 'show' | 'clear' | 'write'>;
  /** `--log-format`: nothing is drawn between JSON lines. */
  readonly format: 'auto' | 'text' | 'json';
  readonly env: NodeJS.ProcessEnv;
  /** Gets the last line where nothing is drawn. */
  readonly log: Pick<Log, 'info'>;
  readonly clock: Clock;
  readonly progress: () => StartProgress;
  /** Ends the progress early. */
  readonly signal: AbortSignal;
}

/** Leaves a line that says how long the start took. Where there is a terminal, it also shows the progress there. */
export function showProgress({ line, format, env, log, clock, progress, signal }: ShownStart): void {
  const isDrawn = line.isTTY && format !== 'json' && env['TERM'] !== 'dumb';
  const startedAt = clock.now();
  const draw = (): void => {
    if (signal.aborted) return;
    const elapsedMs = clock.now() - startedAt;
    const now = progress();
    const text = progressText(now, elapsedMs);
    if (now.isReady) {
      try {
        if (isDrawn) line.write(`${text}\n`);
        else log.info(text);
      } catch {
        // The terminal is gone.
      }
      return;
    }
    if (isDrawn && elapsedMs >= FIRST_MS) line.show(text);
    clock.after(REDRAW_MS, draw);
  };
  if (isDrawn) signal.addEventListener('abort', () => line.clear());
  draw();
}

/** One line for people. */
export function progressText(progress: StartProgress, elapsedMs: number): string {
  const { api, isSynced, pendingServices, wantedPorts, openListeners, isReady } = progress;
  if (isReady) return `Ready: ${counted(wantedPorts, 'Service port')} in ${(elapsedMs / 1_000).toFixed(1)} s`;
  const soFar = pendingServices === 0 ? '' : `, ${counted(pendingServices, 'Service')} so far`;
  const time = `(${Math.floor(elapsedMs / 1_000)} s)`;
  if (!isSynced) {
    if (api === undefined) return `Reading manifests${soFar} ${time}`;
    const server = printable(api.server);
    return api.hasAnswered
      ? `Listing Services from ${server}${soFar} ${time}`
      : `Waiting for the API server ${server} ${time}`;
  }
  const wanted = wantedPorts + pendingServices;
  if (openListeners < wanted) return `Opening listeners: ${grouped(openListeners)} of ${grouped(wanted)} ${time}`;
  return `Installing the rules of ${counted(wantedPorts, 'Service port')} ${time}`;
}

function counted(count: number, what: string): string {
  return `${grouped(count)} ${what}${count === 1 ? '' : 's'}`;
}

/** `10,000` */
function grouped(count: number): string {
  return count.toLocaleString('en-US');
}
