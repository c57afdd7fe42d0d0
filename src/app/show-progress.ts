import type { Health } from '../http/health.ts';
import type { StatusLine } from '../operate/log/output.ts';
import { progressText, type StartProgress } from '../operate/log/start-progress.ts';
import type { Clock } from '../util/clock.ts';
import type { Source } from './open-source.ts';
import type { Pipeline } from './pipeline.ts';

/** A start that is shorter than this shows no more than that it is over. */
const FIRST_MS = 300;
const REDRAW_MS = 100;

export interface ShownStart {
  readonly line: Pick<StatusLine, 'isTTY' | 'show' | 'clear' | 'write'>;
  /** `--log-format`: nothing is drawn between lines for machines. */
  readonly format: 'auto' | 'text' | 'json';
  readonly env: NodeJS.ProcessEnv;
  readonly clock: Clock;
  readonly source: Pick<Source, 'server' | 'status'>;
  readonly controlPlane: {
    readonly isSynced: boolean;
    readonly active: readonly {
      readonly family: Pipeline['family'];
      readonly tracker: Pick<Pipeline['tracker'], 'pendingServices'>;
      readonly listeners: Pick<Pipeline['listeners'], 'count' | 'openCount'>;
    }[];
  };
  readonly health: Pick<Health, 'lastUpdated'>;
  /** Ends it, if the first sync has not. */
  readonly signal: AbortSignal;
}

/** Draws on the terminal, if it is one, how far the start has come, and leaves a line that says when it was done. */
export function showProgress({ line, format, env, clock, signal, ...observed }: ShownStart): void {
  if (!line.isTTY || format === 'json' || env['TERM'] === 'dumb') return;
  const startedAt = clock.now();
  const draw = (): void => {
    if (signal.aborted) return;
    const progress = progressOf(observed, clock.now() - startedAt);
    const text = progressText(progress);
    if (progress.isReady) {
      leave(line, `${text}\n`);
      return;
    }
    if (progress.elapsedMs >= FIRST_MS) line.show(text);
    clock.after(REDRAW_MS, draw);
  };
  signal.addEventListener('abort', () => line.clear());
  draw();
}

/** A terminal that has gone is no defect of ours, as it is none of the log's. */
function leave(line: ShownStart['line'], text: string): void {
  try {
    line.write(text);
  } catch {
    // Nobody looks.
  }
}

function progressOf(
  { source, controlPlane, health }: Pick<ShownStart, 'source' | 'controlPlane' | 'health'>,
  elapsedMs: number,
): StartProgress {
  const pipelines = controlPlane.active;
  const sum = (count: (pipeline: (typeof pipelines)[number]) => number) =>
    pipelines.reduce((total, pipeline) => total + count(pipeline), 0);
  return {
    elapsedMs,
    api:
      source.server === undefined
        ? undefined
        : { server: source.server, hasAnswered: source.status?.().lastContactAt !== undefined },
    isSynced: controlPlane.isSynced,
    // Each family looks at every Service, and nearly all of them are of the first.
    pendingServices: pipelines[0]?.tracker.pendingServices ?? 0,
    wantedPorts: sum(({ listeners }) => listeners.count),
    openListeners: sum(({ listeners }) => listeners.openCount),
    isReady: pipelines.every(({ family }) => health.lastUpdated(family) !== undefined),
  };
}
