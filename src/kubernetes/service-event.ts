import { createHash } from 'node:crypto';
import { partsOf } from '../model/service.ts';
import type { UnservedPort } from '../model/service-port.ts';
import type { Random } from '../util/clock.ts';
import { sleep } from '../util/wait.ts';
import { type ClusterEvent, type EventEnvironment, postEvent } from './event.ts';

/** Ten thousand Services of the wrong kind must not become ten thousand events; the log has all of them. */
const MAX_WAITING = 10;

/** Every node finds the same Services, often at the same time: each event waits for a random part of this. */
const SPREAD_MS = 30_000;

/**
 * Tells on the Service that it, or one of its ports, is not carried, where its owner looks. The event is the cluster's and
 * not the node's: its name follows from what it says, so that whichever node comes first writes it and the API server
 * refuses it to the others. (`system:node-proxier` may create events, and not read them to see whether there is one.)
 */
export class UnservedEvents {
  readonly #environment: EventEnvironment;
  readonly #random: Random;
  /** By name, in the order in which they will be sent. */
  readonly #waiting = new Map<string, ClusterEvent>();
  #hasToldOfMore = false;

  constructor({ random, ...environment }: EventEnvironment & { readonly random: Random }) {
    this.#environment = environment;
    this.#random = random;
  }

  /** Ports of one Service that are not served for one reason share an event, which names the first of them. */
  report(port: UnservedPort): void {
    const event = eventOf(port);
    if (this.#waiting.has(event.name)) return;
    if (this.#waiting.size === MAX_WAITING) {
      if (!this.#hasToldOfMore) {
        this.#environment.log.info(
          'Only the first Services that are not served get an event; this log names all of them',
        );
      }
      this.#hasToldOfMore = true;
      return;
    }
    this.#waiting.set(event.name, event);
    if (this.#waiting.size === 1) void this.#sendAll();
  }

  async #sendAll(): Promise<void> {
    const { clock, signal } = this.#environment;
    // What is reported meanwhile is found, too. One that is being sent still counts as waiting.
    for (const [name, event] of this.#waiting) {
      await sleep(this.#random() * SPREAD_MS, clock, signal);
      if (signal.aborted) return;
      await postEvent(event, this.#environment);
      this.#waiting.delete(name);
    }
  }
}

function eventOf({ name, reason, uid = '' }: UnservedPort): ClusterEvent & { readonly name: string } {
  const { namespace, service } = partsOf(name);
  const hash = createHash('sha256').update(`${namespace}/${service}\n${uid}\n${reason}`).digest('hex').slice(0, 16);
  return {
    name: `${service}.${hash}`,
    type: 'Warning',
    reason: 'ServicePortNotServed',
    message: `${name} is not served: ${reason}`,
    about: { kind: 'Service', namespace, name: service, ...(uid !== '' && { uid }) },
  };
}
