import { createHash } from 'node:crypto';
import { goesWithout } from '../model/finding.ts';
import { partsOf } from '../model/service.ts';
import type { RefusedPart, UnservedPort } from '../model/service-port.ts';
import type { PodsNeeded } from '../model/waiting.ts';
import type { Clock, Random } from '../util/clock.ts';
import { foundText } from '../util/found.ts';
import type { Log } from '../util/log.ts';
import { Ration } from '../util/ration.ts';
import { counted } from '../util/text.ts';
import { rfc3339 } from '../util/timestamp.ts';
import { sleep } from '../util/wait.ts';
import { ApiError, causeMessage } from './api-error.ts';

interface EventEnvironment {
  /** The name of the Node object that this proxy runs on. */
  readonly node: string;
  readonly api: { post(path: string, body: unknown, signal: AbortSignal): Promise<unknown> };
  readonly clock: Clock;
  readonly log: Log;
  readonly signal: AbortSignal;
}

interface ClusterEvent {
  /** Of events of one name the API server keeps the first. Without a name, the server generates one. */
  readonly name?: string;
  readonly type: 'Normal' | 'Warning';
  /** One word in UpperCamelCase, for machines. */
  readonly reason: string;
  readonly message: string;
  /** The object; `kubectl describe` looks for its `uid`. */
  readonly about: { readonly kind: string; readonly namespace?: string; readonly name: string; readonly uid?: string };
}

/**
 * Writes an event, as `kubectl get events` shows it. The component is `kube-proxy`, because runbooks and event filters
 * look for that name. Core `v1`, which every server has and `system:node-proxier` may create.
 */
async function postEvent(
  { name, type, reason, message, about }: ClusterEvent,
  { node, api, clock, signal }: Omit<EventEnvironment, 'log'>,
): Promise<void> {
  // To the second, as Kubernetes keeps it.
  const now = rfc3339(clock.wallNow()).replace(/\.\d+/, '');
  // Objects without a namespace have their events in `default` (upstream's recorder).
  const namespace = about.namespace ?? 'default';
  await api.post(
    `/api/v1/namespaces/${namespace}/events`,
    {
      apiVersion: 'v1',
      kind: 'Event',
      metadata: { ...(name === undefined ? { generateName: `${about.name}.` } : { name }), namespace },
      involvedObject: about,
      type,
      reason,
      message,
      source: { component: 'kube-proxy', host: node },
      firstTimestamp: now,
      lastTimestamp: now,
      count: 1,
    },
    signal,
  );
}

/** The same for one that only informs: never rejects. */
async function tryToPostEvent(event: ClusterEvent, environment: EventEnvironment): Promise<void> {
  const { node, log } = environment;
  try {
    await postEvent(event, environment);
  } catch (error) {
    if (event.name !== undefined && error instanceof ApiError && error.status === 409) return;
    log.v(1)?.info(`The ${event.reason} event could not be sent`, { node, err: causeMessage(error) });
  }
}

/**
 * Asks whoever scales the Service for pods: an event as openshift-sdn wrote it (`pkg/unidler/unidler.go`), for which
 * OpenShift's unidling controller listens. It looks for the reason and for the Service, and compares `lastTimestamp`
 * with the time when the Service was idled. Rejects with {@link ApiError}.
 */
export async function postNeedPods(
  { name, port, uid }: PodsNeeded,
  environment: Omit<EventEnvironment, 'log'>,
): Promise<void> {
  const { namespace, service, portName } = partsOf(name);
  const message = `The service-port ${service}:${portName === '' ? port : portName} needs pods.`;
  const about = { kind: 'Service', namespace, name: service, ...(uid !== undefined && { uid }) };
  await postEvent({ type: 'Normal', reason: 'NeedPods', message, about }, environment);
}

/** Posts upstream's `Starting` event on the Node. `program` is as `kube-userspace-proxy 1.2.3`. Never rejects. */
export async function reportStarting(program: string, environment: EventEnvironment): Promise<void> {
  const { node } = environment;
  // The kubelet's convention, and upstream's: the name in the place of the uid.
  const about = { kind: 'Node', name: node, uid: node };
  await tryToPostEvent({ type: 'Normal', reason: 'Starting', message: `Starting ${program}.`, about }, environment);
}

/** Bounds the events when many Services are not served; the log names all of them. */
const MAX_WAITING = 30;

/** Of one namespace, so that none keeps the others' events out. */
const MAX_WAITING_OF_NAMESPACE = 3;
const PER_NAMESPACE = { burst: 10, intervalMs: 60_000 };

/** Every node finds the same Services at the same time, so each event waits for a random part of this. */
const SPREAD_MS = 30_000;

/**
 * Posts an event on a Service that is not served, or not all of it. The event's name is a hash of its content, so the
 * API server accepts it from one node only. (`system:node-proxier` may create events, but not read them.)
 */
export class UnservedEvents {
  readonly #environment: EventEnvironment;
  readonly #random: Random;
  /** By name, in the order in which they will be sent. */
  readonly #waiting = new Map<string, ClusterEvent>();
  readonly #ration: Ration<string>;
  #hasReportedMore = false;

  constructor({ random, ...environment }: EventEnvironment & { readonly random: Random }) {
    this.#environment = environment;
    this.#random = random;
    this.#ration = new Ration({ clock: environment.clock, ...PER_NAMESPACE });
  }

  /** Ports of one Service that are not served for one reason share an event, which names the first of them. */
  report(part: UnservedPort | RefusedPart): void {
    const event = eventOf(part);
    if (this.#waiting.has(event.name)) return;
    if (!this.#hasPlaceFor(event)) {
      if (!this.#hasReportedMore) {
        this.#environment.log.info(
          'Only the first Services that are not served get an event; this log names all of them',
        );
      }
      this.#hasReportedMore = true;
      return;
    }
    this.#waiting.set(event.name, event);
    if (this.#waiting.size === 1) void this.#sendAll();
  }

  #hasPlaceFor({ about: { namespace = '' } }: ClusterEvent): boolean {
    const ofNamespace = [...this.#waiting.values()].filter(({ about }) => about.namespace === namespace);
    const hasPlace = this.#waiting.size < MAX_WAITING && ofNamespace.length < MAX_WAITING_OF_NAMESPACE;
    return hasPlace && this.#ration.take(namespace) === 'allowed';
  }

  async #sendAll(): Promise<void> {
    const { clock, signal } = this.#environment;
    // The loop also reaches events that are added meanwhile. An event that is being sent still counts as waiting.
    for (const [name, event] of this.#waiting) {
      await sleep(this.#random() * SPREAD_MS, clock, signal);
      if (signal.aborted) return;
      await tryToPostEvent(event, this.#environment);
      this.#waiting.delete(name);
    }
  }
}

function eventOf(part: UnservedPort | RefusedPart): ClusterEvent & { readonly name: string } {
  const { name, uid = '' } = part;
  const reason = foundText(part);
  const { namespace, service } = partsOf(name);
  const hash = createHash('sha256').update(`${namespace}/${service}\n${uid}\n${reason}`).digest('hex').slice(0, 16);
  return {
    name: `${service}.${hash}`,
    type: 'Warning',
    ...('what' in part
      ? { reason: 'ServicePartLeftOut', message: `${name} ${foundText(goesWithout([part]))}` }
      : { reason: 'ServicePortNotServed', message: `${portsOf(part)} not served: ${reason}` }),
    about: { kind: 'Service', namespace, name: service, ...(uid !== '' && { uid }) },
  };
}

function portsOf({ name, more }: UnservedPort): string {
  return more === undefined ? `${name} is` : `${name} and ${counted(more, 'more port')} are`;
}
