import { partsOf, type ServicePortName } from '../model/service.ts';
import type { Clock } from '../util/clock.ts';
import type { Log, LogFields } from '../util/log.ts';
import { Ration } from '../util/ration.ts';

/** With the line that says so, ten lines. */
const LINES = 9;
const INTERVAL_MS = 600_000;

/** Lines about Services. Whoever changes a Service again and again, or one of many ports, cannot fill the log. */
export class ServiceLog {
  readonly #log: Log;
  readonly #ration: Ration<string>;

  constructor(log: Log, clock: Clock) {
    this.#log = log;
    this.#ration = new Ration({ clock, burst: LINES, intervalMs: INTERVAL_MS });
  }

  warn(svc: ServicePortName, message: string, fields: LogFields): void {
    this.#write('warn', svc, message, fields);
  }

  error(svc: ServicePortName, message: string, fields: LogFields): void {
    this.#write('error', svc, message, fields);
  }

  #write(level: 'warn' | 'error', svc: ServicePortName, message: string, fields: LogFields): void {
    const { namespace, service } = partsOf(svc);
    const key = `${namespace}/${service}`;
    const taken = this.#ration.take(key);
    if (taken === 'allowed') this.#log[level](message, { svc, ...fields });
    if (taken === 'first refusal') {
      this.#log.warn('More lines about this Service are not shown; one in ten minutes is', { svc: key });
    }
  }
}
