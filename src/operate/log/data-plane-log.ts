import type { DataPlaneObserver, DialFailure, Refusal } from '../../model/data-plane.ts';
import { partsOf, type ServicePortName } from '../../model/service.ts';
import type { RefusedPart } from '../../model/service-port.ts';
import type { Clock, Timer } from '../../util/clock.ts';
import type { Log, LogFields } from '../../util/log.ts';
import { withoutAddress } from '../../util/text.ts';
import type { DialErrors } from './dial-errors.ts';

const WINDOW_MS = 10_000;

const REFUSED: Readonly<Record<Refusal, string>> = {
  'no-endpoints': 'Refused a client: no endpoint is ready; check the pods behind the Service and its port names',
  exhausted: 'Refused a client: no endpoint answered; check that the pods listen and that this node reaches them',
  'wait-timeout':
    'Refused a client: its time was up before an endpoint came or one became free; check what scales the Service, its ' +
    'pods, and max-connections',
  'wait-full': 'Refused a client: as many wait for an endpoint as may; see the annotation max-waiting',
};

const WAITS = 'Clients wait for an endpoint: none is ready or answers, or all have as many connections as they may';

const DIAL_FAILED: Readonly<Record<DialFailure, string>> = {
  refused: 'An endpoint refused the connection: nothing listens there; check the pod and the target port',
  timeout: 'An endpoint did not answer in time; check the pod, its node and network policies',
  unreachable: 'An endpoint cannot be reached from this node; check routes and the pod network',
  other: 'Cannot connect to an endpoint',
};

const LIMITED = {
  'flows-per-service': 'Dropped a new UDP flow: the Service is at its bound; see --udp-max-flows-per-service',
  'flows-per-namespace': 'Dropped a new UDP flow: its namespace holds its share of all; see --udp-max-flows',
  'flows-total': 'Dropped a new UDP flow: the node is at its bound; see --udp-max-flows',
  descriptors:
    'New clients must wait: their namespace holds its share of the file descriptors; end idle connections, or ' +
    'raise the limit on open files',
} as const;

const FORGOTTEN =
  'Forgot which endpoints the clients unseen for longest had: too many are remembered; see --affinity-max-clients';

const EJECTED = 'Ejected an endpoint that failed too often in a row: clients get others first; see --eject-after';

const READMITTED = 'An ejected endpoint has answered; clients get it again';

type Level = 'info' | 'warn';

type Fields = LogFields & { readonly svc: string; readonly backend?: string };

/** Of one group, of each kind. */
const MAX_NAMES = 1_000;
const SHOWN_NAMES = 3;

/** Events that one line stands for. */
interface Group {
  readonly level: Level;
  readonly message: string;
  /** Of the first event, by which others find the group. */
  readonly keys: readonly string[];
  /** Services whose owners know. */
  readonly told: Set<string>;
  /** Of this window. */
  readonly services: Set<string>;
  readonly backends: Set<string>;
  suppressed: number;
  latest: Fields;
  timer: Timer;
}

/** Who else must know. */
interface DataPlaneListener {
  /** Tells the owner of the Service. */
  readonly onRefused: (part: RefusedPart) => void;
  /** A client waits where nobody waited before. */
  readonly onWaiting: (name: ServicePortName) => void;
}

/**
 * Reports problems on the data path, with the cause and advice, and their end. For each reason, it logs the first
 * event of a Service port and of the address of an endpoint at once. Others of the same Service port, or of the same
 * address, are counted in at most one line in ten seconds: a dead pod is one line, however many Services it is behind,
 * and so is a Service with a thousand dead pods. A bound is one line for each namespace, as one may have a flood at all
 * ports of all its Services. After ten quiet seconds a reason is forgotten, to bound memory.
 */
export class DataPlaneLog implements DataPlaneObserver {
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #groups = new Map<string, Group>();
  readonly #dialErrors: Pick<DialErrors, 'failed'>;
  readonly #listener: DataPlaneListener;

  constructor(log: Log, clock: Clock, dialErrors: Pick<DialErrors, 'failed'>, listener: DataPlaneListener) {
    this.#log = log;
    this.#clock = clock;
    this.#dialErrors = dialErrors;
    this.#listener = listener;
  }

  clientRefused({ name, client, reason }: Parameters<DataPlaneObserver['clientRefused']>[0]): void {
    this.#tell('warn', REFUSED[reason], { svc: name, client });
  }

  clientWaits({ name }: Parameters<DataPlaneObserver['clientWaits']>[0]): void {
    this.#listener.onWaiting(name);
    this.#tell('info', WAITS, { svc: name });
  }

  dialFailed(failure: Parameters<DataPlaneObserver['dialFailed']>[0]): void {
    this.#dialErrors.failed(failure);
    const { name, backend, reason, err } = failure;
    this.#tell('warn', DIAL_FAILED[reason], { svc: name, backend, err: withoutAddress(err, backend) });
  }

  ejected({ name, backend, failures, err }: Parameters<DataPlaneObserver['ejected']>[0]): void {
    this.#tell('warn', EJECTED, { svc: name, backend, failures, err: withoutAddress(err, backend) });
  }

  readmitted({ name, backend }: Parameters<DataPlaneObserver['readmitted']>[0]): void {
    this.#tell('info', READMITTED, { svc: name, backend });
  }

  limited({ name, client, limit }: Parameters<DataPlaneObserver['limited']>[0]): void {
    const message = LIMITED[limit];
    const [what, found] =
      limit === 'descriptors'
        ? ['some new clients', "its namespace holds its share of the node's descriptors"]
        : ['some new UDP flows', message.slice(message.indexOf(': ') + 2)];
    this.#atBound(message, { name, what, found }, client);
  }

  listenerFailed({ name, err }: Parameters<DataPlaneObserver['listenerFailed']>[0]): void {
    this.#tell('warn', 'A listener met an error and continues; if this repeats, check the limit on open files', {
      svc: name,
      err,
    });
  }

  clientsForgotten({ name }: Parameters<DataPlaneObserver['clientsForgotten']>[0]): void {
    this.#atBound(FORGOTTEN, { name, what: 'the affinity of some clients', found: 'too many are remembered' });
  }

  /** Logs what is still suppressed and forgets every group. */
  close(): void {
    for (const group of new Set(this.#groups.values())) {
      group.timer.cancel();
      this.#logSuppressed(group);
    }
    this.#groups.clear();
  }

  /** Each Service's owner is told once while it lasts. */
  #atBound(message: string, part: RefusedPart, client?: string): void {
    const { namespace, service } = partsOf(part.name);
    const fields = { svc: part.name, ...(client !== undefined && { client }) };
    const { told } = this.#tell('warn', message, fields, namespace);
    if (told.has(service) || told.size >= MAX_NAMES) return;
    told.add(service);
    this.#listener.onRefused(part);
  }

  /** `about`: what shares a group. */
  #tell(level: Level, message: string, fields: Fields, about: string = fields.svc): Group {
    const { svc, backend } = fields;
    const address = backend === undefined ? [] : [`${message}\n${backend.slice(0, backend.lastIndexOf(':'))}`];
    const keys = [...address, `${message}\n${about}`];
    const known = keys.map((key) => this.#groups.get(key)).find((group) => group !== undefined);
    if (known !== undefined) {
      known.suppressed++;
      known.latest = fields;
      note(known.services, svc);
      if (backend !== undefined) note(known.backends, backend);
      return known;
    }
    this.#log[level](message, fields);
    const group: Group = {
      level,
      message,
      keys,
      latest: fields,
      suppressed: 0,
      told: new Set(),
      services: new Set([svc]),
      backends: new Set(backend === undefined ? [] : [backend]),
      timer: this.#clock.after(WINDOW_MS, () => this.#windowOver(group)),
    };
    for (const key of keys) this.#groups.set(key, group);
    return group;
  }

  #windowOver(group: Group): void {
    if (!this.#logSuppressed(group)) {
      for (const key of group.keys) this.#groups.delete(key);
      return;
    }
    group.suppressed = 0;
    group.services.clear();
    group.backends.clear();
    group.timer = this.#clock.after(WINDOW_MS, () => this.#windowOver(group));
  }

  #logSuppressed({ level, message, suppressed, latest, services, backends }: Group): boolean {
    if (suppressed === 0) return false;
    const { svc: _, ...rest } = latest;
    this.#log[level](message, {
      ...(services.size > 1 ? { svcs: namesOf(services), services: services.size, ...rest } : latest),
      ...(backends.size > 1 && { backends: backends.size }),
      suppressed,
    });
    return true;
  }
}

function note(names: Set<string>, name: string): void {
  if (names.size < MAX_NAMES) names.add(name);
}

function namesOf(services: ReadonlySet<string>): string {
  const shown = [...services].slice(0, SHOWN_NAMES).join(', ');
  return services.size > SHOWN_NAMES ? `${shown}, …` : shown;
}
