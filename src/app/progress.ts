import type { Health } from '../http/health.ts';
import type { IpFamily } from '../model/address.ts';
import type { StatusLine } from '../operate/log/output.ts';
import { progressText, type StartProgress } from '../operate/log/start-progress.ts';
import type { Clock } from '../util/clock.ts';
import { sleep } from '../util/wait.ts';
import type { Pipeline } from './pipeline.ts';
import type { Source } from './source.ts';

/**
 * The units that wait for this service may be what its first sync waits for (an API server on this node), and systemd
 * aborts a start that takes 90 s.
 */
const PATIENCE_MS = 10_000;
const LOOK_MS = 20;

/** Resolves when `isDone`, after ten seconds, or when aborted. */
export async function patience(isDone: () => boolean, clock: Clock, signal: AbortSignal): Promise<void> {
  const deadline = clock.now() + PATIENCE_MS;
  while (!isDone() && !signal.aborted && clock.now() < deadline) await sleep(LOOK_MS, clock, signal);
}

/**
 * A function that gives the time of this call in milliseconds since 1970, by the wall clock as it is set at the time of
 * asking. Where a machine starts with a wrong clock, the start of the program does not stay in 1970.
 */
export function startTime(clock: Clock): () => number {
  const startedMs = clock.now();
  return () => Math.round(clock.wallNow() - (clock.now() - startedMs));
}

/** A start that is shorter than this shows only its end. */
const FIRST_MS = 300;
const REDRAW_MS = 100;

export interface ShownStart {
  readonly line: Pick<StatusLine, 'isTTY' | 'show' | 'clear' | 'write'>;
  /** `--log-format`: nothing is drawn between JSON lines. */
  readonly format: 'auto' | 'text' | 'json';
  readonly env: NodeJS.ProcessEnv;
  readonly clock: Clock;
  readonly source: Pick<Source, 'server' | 'status'>;
  readonly controlPlane: {
    readonly isSynced: boolean;
    readonly active: readonly {
      readonly family: IpFamily;
      readonly tracker: Pick<Pipeline['tracker'], 'pendingServices'>;
      readonly listeners: Pick<Pipeline['listeners'], 'count' | 'openCount'>;
    }[];
  };
  readonly health: Pick<Health, 'lastUpdated'>;
  /** Ends it, if the first sync has not. */
  readonly signal: AbortSignal;
}

/** Draws the progress of the start on the terminal, if there is one, and leaves a line that says how long it took. */
export function showProgress({ line, format, env, clock, signal, ...observed }: ShownStart): void {
  if (!line.isTTY || format === 'json' || env['TERM'] === 'dumb') return;
  const startedAt = clock.now();
  const draw = (): void => {
    if (signal.aborted) return;
    const progress = progressOf(observed, clock.now() - startedAt);
    const text = progressText(progress);
    if (progress.isReady) {
      try {
        line.write(`${text}\n`);
      } catch {
        // The terminal is gone.
      }
      return;
    }
    if (progress.elapsedMs >= FIRST_MS) line.show(text);
    clock.after(REDRAW_MS, draw);
  };
  signal.addEventListener('abort', () => line.clear());
  draw();
}

function progressOf(
  { source, controlPlane, health }: Pick<ShownStart, 'source' | 'controlPlane' | 'health'>,
  elapsedMs: number,
): StartProgress {
  const pipelines = controlPlane.active;
  const sum = (count: (pipeline: (typeof pipelines)[number]) => number) =>
    pipelines.reduce((total, pipeline) => total + count(pipeline), 0);
  const { server } = source;
  return {
    elapsedMs,
    api: server === undefined ? undefined : { server, hasAnswered: source.status?.().lastContactAt !== undefined },
    isSynced: controlPlane.isSynced,
    // Each family looks at every Service, and nearly all of them are of the first.
    pendingServices: pipelines[0]?.tracker.pendingServices ?? 0,
    wantedPorts: sum(({ listeners }) => listeners.count),
    openListeners: sum(({ listeners }) => listeners.openCount),
    isReady: pipelines.every(({ family }) => health.lastUpdated(family) !== undefined),
  };
}
