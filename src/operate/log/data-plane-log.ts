import type { DataPlaneObserver, DialFailure } from '../../model/data-plane.ts';
import type { Clock, Timer } from '../../util/clock.ts';
import type { Log, LogFields } from '../../util/log.ts';

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

interface Subject {
  readonly timer: Timer;
  suppressed: number;
  latest: LogFields;
}

/**
 * Warns of what goes wrong on the data path, with the cause and what to check. Per Service port and reason: the first
 * event at once, then one line for every ten seconds that had further ones, saying how many. A subject is forgotten
 * after ten quiet seconds, so memory follows what goes wrong now; Service ports that exist bound it.
 */
export class DataPlaneLog implements DataPlaneObserver {
  readonly #log: Log;
  readonly #clock: Clock;
  /** By message and Service port; a message stands for its reason. */
  readonly #subjects = new Map<string, Subject>();

  constructor(log: Log, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  turnedAway({ name, client, reason }: Parameters<DataPlaneObserver['turnedAway']>[0]): void {
    this.#warn(TURNED_AWAY[reason], { svc: name, client });
  }

  dialFailed({ name, backend, reason, err }: Parameters<DataPlaneObserver['dialFailed']>[0]): void {
    this.#warn(DIAL_FAILED[reason], { svc: name, backend, err });
  }

  limited({ name, client, limit }: Parameters<DataPlaneObserver['limited']>[0]): void {
    this.#warn(LIMITED[limit], { svc: name, client });
  }

  listenerFailed({ name, err }: Parameters<DataPlaneObserver['listenerFailed']>[0]): void {
    this.#warn('A listener failed and goes on; when it repeats, check the limit on open files', { svc: name, err });
  }

  /** Tells what is still suppressed and forgets everything. */
  close(): void {
    for (const [key, subject] of this.#subjects) {
      subject.timer.cancel();
      this.#tellSuppressed(key, subject);
    }
    this.#subjects.clear();
  }

  #warn(message: string, fields: LogFields & { readonly svc: string }): void {
    const key = `${message}\n${fields.svc}`;
    const subject = this.#subjects.get(key);
    if (subject !== undefined) {
      subject.suppressed++;
      subject.latest = fields;
      return;
    }
    this.#log.warn(message, fields);
    this.#open(key, fields);
  }

  #open(key: string, latest: LogFields): void {
    const timer = this.#clock.after(WINDOW_MS, () => this.#windowEnds(key));
    this.#subjects.set(key, { timer, suppressed: 0, latest });
  }

  #windowEnds(key: string): void {
    const subject = this.#subjects.get(key);
    this.#subjects.delete(key);
    if (subject !== undefined && this.#tellSuppressed(key, subject)) this.#open(key, subject.latest);
  }

  /** Whether there was anything to tell. */
  #tellSuppressed(key: string, { suppressed, latest }: Subject): boolean {
    if (suppressed === 0) return false;
    const [message = ''] = key.split('\n');
    this.#log.warn(message, { ...latest, suppressed });
    return true;
  }
}
