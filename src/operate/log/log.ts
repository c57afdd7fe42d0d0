import { once } from 'node:events';
import { Writable } from 'node:stream';
import winston from 'winston';
import type { EventView } from '../../model/view.ts';
import type { Clock } from '../../util/clock.ts';
import { type Log, type LogFields, plainFields } from '../../util/log.ts';
import { printable } from '../../util/text.ts';
import { rfc3339 } from '../../util/timestamp.ts';
import type { LogOutput } from './output.ts';

/* The log of the program: winston's levels, formats and transports, with klog's verbosity as further levels. */

export interface LogOptions {
  /** klog's, from 0 to 10: lines of `v(n)` appear when n is at most this. */
  readonly verbosity: number;
  /** `auto`: text on a terminal, JSON elsewhere. */
  readonly format: 'auto' | 'text' | 'json';
  readonly output: LogOutput;
  readonly clock: Clock;
}

export interface ProcessLog extends Log {
  readonly verbosity: number;
  setVerbosity(verbosity: number): void;
  /** The last lines of verbosity 0, oldest first, safe to show on a terminal or a page. */
  readonly events: readonly EventView[];
  /** Lines since start, dropped ones included. */
  readonly lines: Readonly<Record<Severity, number>>;
  /** Lines that could not be written, as on a full disk or into a closed pipe. */
  readonly droppedLines: number;
  /** Resolves when every line so far has been written or counted as dropped. Call it before the process ends. */
  flush(): Promise<void>;
}

type Severity = EventView['level'];

/** One line on its way through winston. */
interface Entry {
  /** A {@link Severity}, or `v1` to `v10`. */
  readonly level: string;
  readonly message: string;
  readonly fields: ReturnType<typeof plainFields>;
  /** When it was logged, in milliseconds since 1970. */
  readonly at: number;
}

const MAX_VERBOSITY = 10;
/** By importance, as winston compares them: error 0, warn 1, info 2, v1 3 … v10 12. */
const LEVELS = Object.fromEntries(
  ['error', 'warn', ...Array.from({ length: MAX_VERBOSITY + 1 }, (_, v) => levelOf(v))].map((name, at) => [name, at]),
);

/** Enough for an operator who looks an hour later, in little memory. */
const MAX_EVENTS = 300;
/** Longer texts are cut in an event; the log has them in full. */
const MAX_EVENT_TEXT = 500;

export function createLog({ verbosity, format, output, clock }: LogOptions): ProcessLog {
  const lines: Record<Severity, number> = { error: 0, warn: 0, info: 0 };
  const events: EventView[] = [];
  let droppedLines = 0;
  let lastEventId = 0;
  let unwritten = 0;

  const written = new Writable({
    decodeStrings: false,
    write: (line: string, _encoding, done) => {
      try {
        output.write(line);
      } catch {
        // There is nowhere left to report this; the count is a metric.
        droppedLines++;
      }
      if (--unwritten === 0) written.emit('idle');
      done();
    },
  });
  const remembered = new Writable({
    objectMode: true,
    write: ({ level, message, fields, at }: Entry, _encoding, done) => {
      events.push({
        id: ++lastEventId,
        at,
        level: level as Severity,
        message: cut(message),
        fields: Object.fromEntries(
          Object.entries(fields).map(([key, value]) => [key, typeof value === 'string' ? cut(value) : value]),
        ),
      });
      if (events.length > MAX_EVENTS) events.shift();
      done();
    },
  });
  const asText = format === 'text' || (format === 'auto' && output.isTTY);
  const logger = winston.createLogger({
    levels: LEVELS,
    level: levelOf(verbosity),
    transports: [
      new winston.transports.Stream({ stream: written, format: asText ? TEXT : JSON_LINES, eol: '\n' }),
      new winston.transports.Stream({ stream: remembered, level: 'info' }),
    ],
  });

  const log = (level: string, message: string, fields: LogFields = {}): void => {
    unwritten++;
    lines[severityOf(level)]++;
    logger.log({ level, message, fields: plainFields(fields), at: clock.wallNow() } satisfies Entry);
  };
  return {
    error: (message, fields) => log('error', message, fields),
    warn: (message, fields) => log('warn', message, fields),
    info: (message, fields) => log('info', message, fields),
    v: (v) =>
      logger.isLevelEnabled(levelOf(v)) ? { info: (message, fields) => log(levelOf(v), message, fields) } : undefined,
    get verbosity() {
      return verbosityOf(logger.level);
    },
    setVerbosity: (value) => {
      logger.level = levelOf(value);
    },
    events,
    lines,
    get droppedLines() {
      return droppedLines;
    },
    flush: async () => {
      // winston does not promise to pass lines on before `log` returns.
      if (unwritten > 0) await once(written, 'idle');
    },
  };
}

function levelOf(verbosity: number): string {
  return verbosity === 0 ? 'info' : `v${verbosity}`;
}

function verbosityOf(level: string): number {
  return level.startsWith('v') ? Number(level.slice(1)) : 0;
}

function severityOf(level: string): Severity {
  return level === 'error' || level === 'warn' ? level : 'info';
}

function cut(text: string): string {
  return printable(text.length > MAX_EVENT_TEXT ? `${text.slice(0, MAX_EVENT_TEXT)}…` : text);
}

const { printf } = winston.format;

/** `{"ts":"2026-11-20T05:23:36.843Z","level":"warn","v":0,"msg":"…","svc":"default/web"}` */
const JSON_LINES = printf((info) => {
  const { level, message, fields, at } = info as unknown as Entry;
  const record: Record<string, unknown> = {
    ts: rfc3339(at),
    level: severityOf(level),
    v: verbosityOf(level),
    msg: message,
  };
  // A field never replaces one of these keys.
  for (const [key, value] of Object.entries(fields)) record[Object.hasOwn(record, key) ? `${key}_` : key] = value;
  return printable(JSON.stringify(record));
});

/** `05:23:36.843 W message svc=default/web err="connect ECONNREFUSED"` */
const TEXT = printf((info) => {
  const { level, message, fields, at } = info as unknown as Entry;
  const pairs = Object.entries(fields).flatMap(([key, value]) =>
    value === undefined ? [] : ` ${key}=${quoted(String(value))}`,
  );
  const time = rfc3339(at).slice('2026-11-20T'.length, -1);
  return printable(`${time} ${severityOf(level)[0]?.toUpperCase()} ${message}${pairs.join('')}`);
});

/** Quotes a value only where it would run into its neighbours. */
function quoted(value: string): string {
  return /^[\w./:@%+,[\]-]+$/.test(value) ? value : JSON.stringify(value);
}
