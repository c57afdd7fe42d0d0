import type { EventView } from '../../model/view.ts';
import type { Clock } from '../../util/clock.ts';
import type { Log, LogFields, LogSink } from '../../util/log.ts';
import { printable } from '../../util/text.ts';

/** Enough for an operator who comes an hour after a bad night, and little memory. */
const MAX_EVENTS = 300;

/** Longer texts are cut: an event is shown, and the log has the whole. */
const MAX_TEXT = 500;

/**
 * Remembers the last lines of the log that it is in front of, but for those of a verbosity above 0: they would push the
 * others out. Its texts are safe for a terminal, a page and a file alike, whatever an API server has put into an error.
 */
export class RecentEvents implements Log {
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #events: EventView[] = [];
  #lastId = 0;

  constructor(log: Log, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  /** Oldest first. */
  get events(): readonly EventView[] {
    return this.#events;
  }

  error(message: string, fields?: LogFields): void {
    this.#note('error', message, fields);
    this.#log.error(message, fields);
  }

  warn(message: string, fields?: LogFields): void {
    this.#note('warn', message, fields);
    this.#log.warn(message, fields);
  }

  info(message: string, fields?: LogFields): void {
    this.#note('info', message, fields);
    this.#log.info(message, fields);
  }

  v(level: number): LogSink | undefined {
    return this.#log.v(level);
  }

  #note(level: EventView['level'], message: string, fields: LogFields = {}): void {
    this.#events.push({
      id: ++this.#lastId,
      at: this.#clock.wallNow(),
      level,
      message: cut(message),
      fields: Object.fromEntries(
        Object.entries(fields).flatMap(([key, value]) =>
          value === undefined ? [] : [[key, typeof value === 'string' ? cut(value) : value]],
        ),
      ),
    });
    if (this.#events.length > MAX_EVENTS) this.#events.shift();
  }
}

function cut(text: string): string {
  return printable(text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text);
}
