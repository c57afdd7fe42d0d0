import type { DataPlaneObserver, DialFailure } from '../../model/data-plane.ts';
import type { Clock, Timer } from '../../util/clock.ts';
import type { Log, LogFields } from '../../util/log.ts';
import { withoutAddress } from '../../util/text.ts';
import type { DialErrors } from './dial-errors.ts';

const WINDOW_MS = 10_000;

const TURNED_AWAY = {
  'no-endpoints': 'Turned a client away: no endpoint is ready; check the pods behind the Service and its port names',
  exhausted: 'Turned a client away: no endpoint answered; check that the pods listen and that this node reaches them',
} as const;

const DIAL_FAILED: Readonly<Record<DialFailure, string>> = {
  refused: 'An endpoint refused the connection: nothing listens there; check the pod and the target port',
  timeout: 'An endpoint did not answer in time; check the pod, its node and network policies',
  unreachable: 'An endpoint cannot be reached from this node; check routes and the pod network',
  other: 'Cannot connect to an endpoint',
};

const LIMITED = {
  'flows-per-service': 'Dropped a new UDP flow: the Service is at its bound; see --udp-max-flows-per-service',
  'flows-total': 'Dropped a new UDP flow: the node is at its bound; see --udp-max-flows',
} as const;

const EJECTED = 'Ejected an endpoint that failed too often in a row: clients get others first; see --eject-after';

const READMITTED = 'An ejected endpoint has answered; clients get it again';

type Level = 'info' | 'warn';

interface Subject {
  readonly level: Level;
  readonly timer: Timer;
  suppressed: number;
  latest: LogFields;
}

/**
 * Tells of problems on the data path, with the cause and advice, and of their end. Per Service port and reason, it logs
 * the first event at once, then at most one line with a count in ten seconds. It forgets a subject after ten quiet
 * seconds, to bound memory.
 */
export class DataPlaneLog implements DataPlaneObserver {
  readonly #log: Log;
  readonly #clock: Clock;
  /** By message and Service port; each reason has its own message. */
  readonly #subjects = new Map<string, Subject>();
  readonly #dialErrors: Pick<DialErrors, 'failed'>;

  constructor(log: Log, clock: Clock, dialErrors: Pick<DialErrors, 'failed'>) {
    this.#log = log;
    this.#clock = clock;
    this.#dialErrors = dialErrors;
  }

  clientRefused({ name, client, reason }: Parameters<DataPlaneObserver['clientRefused']>[0]): void {
    this.#warn(TURNED_AWAY[reason], { svc: name, client });
  }

  dialFailed(failure: Parameters<DataPlaneObserver['dialFailed']>[0]): void {
    this.#dialErrors.failed(failure);
    const { name, backend, reason, err } = failure;
    this.#warn(DIAL_FAILED[reason], { svc: name, backend, err: withoutAddress(err, backend) });
  }

  ejected({ name, backend, failures, err }: Parameters<DataPlaneObserver['ejected']>[0]): void {
    this.#warn(EJECTED, { svc: name, backend, failures, err: withoutAddress(err, backend) });
  }

  readmitted({ name, backend }: Parameters<DataPlaneObserver['readmitted']>[0]): void {
    this.#tell('info', READMITTED, { svc: name, backend });
  }

  limited({ name, client, limit }: Parameters<DataPlaneObserver['limited']>[0]): void {
    this.#warn(LIMITED[limit], { svc: name, client });
  }

  listenerFailed({ name, err }: Parameters<DataPlaneObserver['listenerFailed']>[0]): void {
    this.#warn('A listener failed and goes on; when it repeats, check the limit on open files', { svc: name, err });
  }

  /** Logs what is still suppressed and forgets every subject. */
  close(): void {
    for (const [key, subject] of this.#subjects) {
      subject.timer.cancel();
      this.#logSuppressed(key, subject);
    }
    this.#subjects.clear();
  }

  #warn(message: string, fields: LogFields & { readonly svc: string }): void {
    this.#tell('warn', message, fields);
  }

  #tell(level: Level, message: string, fields: LogFields & { readonly svc: string }): void {
    const key = `${message}\n${fields.svc}`;
    const subject = this.#subjects.get(key);
    if (subject !== undefined) {
      subject.suppressed++;
      subject.latest = fields;
      return;
    }
    this.#log[level](message, fields);
    this.#open(key, level, fields);
  }

  #open(key: string, level: Level, latest: LogFields): void {
    const timer = this.#clock.after(WINDOW_MS, () => {
      const subject = this.#subjects.get(key);
      this.#subjects.delete(key);
      if (subject !== undefined && this.#logSuppressed(key, subject)) this.#open(key, level, subject.latest);
    });
    this.#subjects.set(key, { level, timer, suppressed: 0, latest });
  }

  #logSuppressed(key: string, { level, suppressed, latest }: Subject): boolean {
    if (suppressed === 0) return false;
    const [message = ''] = key.split('\n');
    this.#log[level](message, { ...latest, suppressed });
    return true;
  }
}
