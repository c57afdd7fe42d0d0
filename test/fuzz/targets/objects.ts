import assert from 'node:assert/strict';
import { parseWatchEvent } from '../../../src/kubernetes/answers.ts';
import { ApiError } from '../../../src/kubernetes/api-error.ts';
import { resourceOf } from '../../../src/kubernetes/kubernetes-source.ts';
import { type Change, ObjectStore } from '../../../src/kubernetes/object-store.ts';
import { encodeObject } from '../../../src/kubernetes/objects/encode.ts';
import { decodeSaved, type Kind, type KubernetesObject } from '../../../src/kubernetes/objects/kubernetes-object.ts';
import type { SourceEvent } from '../../../src/model/source.ts';
import { LineSplitter } from '../../../src/util/line-splitter.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';
import { mutateText, mutateValue } from '../mutate.ts';
import { RulesWorld } from '../rules-world.ts';
import type { OpenTarget } from '../target.ts';

/* Lines of watches, each an event → decoded objects → state → rules → the text for iptables-restore. */

const KINDS: readonly Kind[] = ['Service', 'EndpointSlice', 'Endpoints'];
const EVENTS = 10;

export const open: OpenTarget = () => ({
  make(known, draws) {
    const lines = known.flatMap((input) => input.toString().trim().split('\n'));
    const made = Array.from({ length: EVENTS }, () => {
      let event: unknown;
      try {
        event = JSON.parse(draws.pick(lines));
      } catch {
        return mutateText(Buffer.from(draws.pick(lines)), [], draws)
          .toString()
          .replaceAll('\n', ' ');
      }
      for (let count = draws.below(4); count > 0; count--) event = mutateValue(event, draws);
      const line = JSON.stringify(event);
      return draws.once(20) ? mutateText(Buffer.from(line), [], draws).toString() : line;
    });
    return Buffer.from(`${made.join('\n')}\n`);
  },

  async run(input) {
    const [log, clock] = [new RecordingLog(), new ManualClock()];
    const stores = new Map(KINDS.map((kind) => [kind, new ObjectStore(resourceOf(kind), log, clock)]));
    const world = new RulesWorld();
    for (const line of new LineSplitter(1 << 20).push(input)) {
      try {
        const event = parseWatchEvent(line);
        if (event.type === 'bookmark') continue;
        const { kind } = event.object as { readonly kind?: unknown };
        const of = KINDS.find((each) => each === kind) ?? 'Service';
        const store = stores.get(of) as ObjectStore<KubernetesObject>;
        const change = event.type === 'deleted' ? store.delete(event.object) : store.change(event.object);
        if (change === undefined) continue;
        await world.apply([eventOf(of, change)]);
        comesBack(change.value);
      } catch (error) {
        // The watch begins anew.
        if (!(error instanceof ApiError)) throw error;
      }
    }
    await world.end();
  },
});

/** From the state on disk: all that is derived from, and that the next release may know. */
function comesBack(value: KubernetesObject | undefined): void {
  if (value === undefined) return;
  const encoded: unknown = JSON.parse(JSON.stringify(encodeObject(value)));
  assert.deepEqual(decodeSaved(encoded), withoutLosses(value));
}

/** Annotations that are refused, and when a change happened, are for the log and for a metric. */
function withoutLosses(object: KubernetesObject): unknown {
  if (object.kind === 'EndpointSlice') {
    const { triggeredAt: _, ...value } = object.value;
    return { ...object, value };
  }
  if (object.kind !== 'Service' || object.value.options?.refused === undefined) return object;
  const { options, ...value } = object.value;
  const { refused: _, ...kept } = options;
  return { ...object, value: { ...value, ...(Object.keys(kept).length > 0 && { options: kept }) } };
}

/** As `KubernetesSource` makes it. */
function eventOf(kind: Kind, { key, value }: Change<KubernetesObject>): SourceEvent {
  return value ?? { kind, key: key as SourceEvent['key'], value: undefined };
}
