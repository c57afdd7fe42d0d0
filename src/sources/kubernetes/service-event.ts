import { partsOf } from '../../model/service.ts';
import type { UnservedPort } from '../../model/service-port.ts';
import { type EventEnvironment, postEvent } from './event.ts';

/** So that ten thousand Services of the wrong kind do not become ten thousand requests; the log has all of them. */
const MAX_EVENTS = 100;

/** Tells on the Service that one of its ports is not carried, where its owner looks. Each call's promise may be dropped. */
export class UnservedEvents {
  readonly #environment: EventEnvironment;
  #left = MAX_EVENTS;

  constructor(environment: EventEnvironment) {
    this.#environment = environment;
  }

  /** Resolves whatever happens. */
  async report({ name, reason, uid }: UnservedPort): Promise<void> {
    if (this.#left-- <= 0) return;
    const { namespace, service } = partsOf(name);
    const about = { kind: 'Service', namespace, name: service, ...(uid !== undefined && { uid }) };
    const message = `${name} is not served on ${this.#environment.node}: ${reason}`;
    await postEvent({ type: 'Warning', reason: 'ServicePortNotServed', message, about }, this.#environment);
  }
}
