import { Writable } from 'node:stream';
import winston from 'winston';
import type { Clock } from '../../util/clock.ts';
import type { Log, LogFields, LogSink } from '../../util/log.ts';
import { printable } from '../../util/text.ts';
import { rfc3339 } from '../../util/timestamp.ts';
import type { LogOutput } from './log-output.ts';

export interface LogOptions {
  /** klog's: lines of `v(n)` appear when n is at most this. */
  readonly verbosity: number;
  /** `auto`: text on a terminal, JSON elsewhere. */
  readonly format: 'auto' | 'text' | 'json';
  readonly output: LogOutput;
  readonly clock: Clock;
}

export interface ProcessLog extends Log {
  readonly verbosity: number;
  setVerbosity(verbosity: number): void;
  /** Lines since start, dropped ones too. */
  readonly lines: Readonly<Record<Level, number>>;
  /** Of them, those that could not be written, as on a full disk or into a closed pipe. */
  readonly droppedLines: number;
  /** Resolves when every line so far has been written or counted as dropped: for before the process ends. */
  flush(): Promise<void>;
}

type Level = 'error' | 'warn' | 'info';

/** One line's content, on its way through winston. */
interface Entry {
  readonly level: Level;
  readonly message: string;
  readonly v: number;
  readonly wallMs: number;
  readonly fields: LogFields;
}

/**
 * winston as the sink, klog's verbosity in front of it: whether a line is wanted is one comparison of integers before
 * winston hears of it, because its own disabled level still costs about a microsecond.
 */
export function createLog({ verbosity, format, output, clock }: LogOptions): ProcessLog {
  let threshold = verbosity;
  // winston hands every line over before it returns today; that is how its streams happen to be built, no promise.
  let inFlight = 0;
  const lines: Record<Level, number> = { error: 0, warn: 0, info: 0 };
  let droppedLines = 0;
  let flushed: (() => void)[] = [];

  const asText = format === 'text' || (format === 'auto' && output.isTTY);
  const stream = new Writable({
    decodeStrings: false,
    write: (line: string, _encoding, done) => {
      try {
        output.write(line);
      } catch {
        // Nowhere is left to tell it; the count is among the metrics.
        droppedLines++;
      }
      if (--inFlight === 0) {
        for (const resolve of flushed) resolve();
        flushed = [];
      }
      done();
    },
  });
  const logger = winston.createLogger({
    format: winston.format.printf((info) => (asText ? textLine : jsonLine)(info as unknown as Entry)),
    transports: [new winston.transports.Stream({ stream, eol: '\n' })],
  });

  const log = (level: Level, v: number, message: string, fields: LogFields = {}): void => {
    inFlight++;
    lines[level]++;
    logger.log({ level, message, v, wallMs: clock.wallNow(), fields } satisfies Entry);
  };
  const sinkFor = (v: number): LogSink => ({ info: (message, fields) => log('info', v, message, fields) });
  return {
    error: (message, fields) => log('error', 0, message, fields),
    warn: (message, fields) => log('warn', 0, message, fields),
    info: (message, fields) => log('info', 0, message, fields),
    v: (level) => (level <= threshold ? sinkFor(level) : undefined),
    get verbosity() {
      return threshold;
    },
    setVerbosity: (value) => {
      threshold = value;
    },
    lines,
    get droppedLines() {
      return droppedLines;
    },
    flush: () => (inFlight === 0 ? Promise.resolve() : new Promise((resolve) => flushed.push(resolve))),
  };
}

/** `{"ts":"2026-11-20T05:23:36.843Z","level":"warn","v":0,"msg":"…","svc":"default/web"}` */
function jsonLine({ level, message, v, wallMs, fields }: Entry): string {
  const record: Record<string, unknown> = { ts: rfc3339(wallMs), level, v, msg: message };
  for (const [key, value] of Object.entries(fields)) {
    // Two equal keys are for the reader to choose from; a field never takes the place of ours.
    record[Object.hasOwn(record, key) ? `${key}_` : key] = value;
  }
  return printable(JSON.stringify(record));
}

const LETTER: Readonly<Record<Level, string>> = { error: 'E', warn: 'W', info: 'I' };

/** `05:23:36.843 W message svc=default/web err="connect ECONNREFUSED"` */
function textLine({ level, message, wallMs, fields }: Entry): string {
  const time = rfc3339(wallMs).slice('2026-11-20T'.length, -1);
  const pairs = Object.entries(fields)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => ` ${key}=${textValue(String(value))}`);
  return printable(`${time} ${LETTER[level]} ${message}${pairs.join('')}`);
}

/** Quoted where it would run into its neighbours. */
function textValue(value: string): string {
  return /^[\w./:@%+,[\]-]+$/.test(value) ? value : JSON.stringify(value);
}
