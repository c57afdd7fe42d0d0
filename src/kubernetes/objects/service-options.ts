import { findScheduler } from '../../model/scheduler.ts';
import type { ServiceOptions, ServicePortSpec } from '../../model/service.ts';
import { formatDuration, parseDuration } from '../../util/duration.ts';
import { type Field, show } from '../../util/untrusted.ts';
import type { Warnings } from './decoded.ts';

const PREFIX = 'kube-userspace-proxy/';

/** Below, a healthy endpoint would seldom be waited for; above, a client has given up (resolvers wait 5 s). */
const UDP_REPLAY = { minMs: 10, maxMs: 5000 };
/** Workers keep a list for each value that there has been. */
const UDP_REPLAY_STEP_MS = 10;

/** A pod seldom warms up in less, and a mistyped day would be no start. */
const SLOW_START = { minMs: 1000, maxMs: 3_600_000 };

/** The first that a Service has counts. Values are names of IPVS, except for Cilium's annotation. */
const SCHEDULER_ANNOTATIONS = [
  `${PREFIX}scheduler`,
  'kube-router.io/service.scheduler',
  'service.cilium.io/lb-algorithm',
] as const;
const OTHER_NAMES: Readonly<Record<string, string>> = { maglev: 'mh' };

/** A wrong value is left out with a warning, and the node's default serves. `undefined` when nothing is asked for. */
export function decodeServiceOptions(
  service: Field,
  ports: readonly ServicePortSpec[],
  warnings: Warnings,
): ServiceOptions | undefined {
  const annotations = service.get('metadata').get('annotations');
  if (!annotations.isPresent) return undefined;
  const choice = <const T extends string>(name: string, choices: readonly T[]): T | undefined => {
    const field = annotations.get(PREFIX + name);
    return field.isPresent ? warnings.optional(() => field.oneOf(choices)) : undefined;
  };
  const duration = (name: string, bounds: { readonly minMs: number; readonly maxMs: number }): number | undefined => {
    const field = annotations.get(PREFIX + name);
    return field.isPresent ? warnings.optional(() => durationOf(field, bounds)) : undefined;
  };
  const clientAddress = choice('client-address', ['preserve', 'node']);
  const proxyProtocol = choice('proxy-protocol', ['v1', 'v2']);
  if (proxyProtocol !== undefined && ports.some(({ protocol }) => protocol === 'UDP')) {
    const problem = 'has no effect on UDP ports: only a TCP connection can begin with a header';
    warnings.add(annotations.get(`${PREFIX}proxy-protocol`).error(problem).problem);
  }
  const exactUdpReplayMs = duration('udp-replay', UDP_REPLAY);
  const udpReplayMs = exactUdpReplayMs && Math.round(exactUdpReplayMs / UDP_REPLAY_STEP_MS) * UDP_REPLAY_STEP_MS;
  if (udpReplayMs !== undefined && !ports.some(({ protocol }) => protocol === 'UDP')) {
    warnings.add(annotations.get(`${PREFIX}udp-replay`).error('has no effect: the Service has no UDP port').problem);
  }
  const slowStartMs = duration('slow-start', SLOW_START);
  const options: ServiceOptions = {
    ...(clientAddress !== undefined && { clientAddress }),
    ...(proxyProtocol !== undefined && { proxyProtocol }),
    ...(udpReplayMs !== undefined && { udpReplayMs }),
    ...decodeScheduler(annotations, warnings),
    ...(slowStartMs !== undefined && { slowStartMs }),
  };
  return Object.keys(options).length === 0 ? undefined : options;
}

function durationOf(field: Field, { minMs, maxMs }: { readonly minMs: number; readonly maxMs: number }): number {
  const ms = parseDuration(field.string());
  if (ms !== undefined && ms >= minMs && ms <= maxMs) return ms;
  throw field.wrong(`expected a duration from ${formatDuration(minMs)} to ${formatDuration(maxMs)}, such as "300ms"`);
}

/** A name that there is not is no warning here: the tracker tells the Service's owner of it, by log and event. */
function decodeScheduler(
  annotations: Field,
  warnings: Warnings,
): Pick<ServiceOptions, 'scheduler' | 'refusedScheduler'> {
  const annotation = SCHEDULER_ANNOTATIONS.find((each) => annotations.get(each).isPresent);
  if (annotation === undefined) return {};
  const text = warnings.optional(() => annotations.get(annotation).string());
  if (text === undefined) return {};
  const found = findScheduler(Object.hasOwn(OTHER_NAMES, text) ? (OTHER_NAMES[text] as string) : text);
  if ('name' in found) return { scheduler: found.name };
  return { refusedScheduler: { what: `the scheduler ${show(text)} of ${annotation}`, ...found } };
}
