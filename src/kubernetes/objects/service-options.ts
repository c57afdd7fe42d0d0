import { findScheduler, type SchedulerName } from '../../model/scheduler.ts';
import type { ServiceOptions, ServicePortSpec } from '../../model/service.ts';
import { MAX_WAIT_MS, MIN_WAIT_MS, waitingTerms } from '../../model/waiting.ts';
import { formatDuration, parseDuration } from '../../util/duration.ts';
import { type Field, show } from '../../util/untrusted.ts';
import { adviceOn, keysOf, PREFIX, unknownAmong } from './annotations.ts';
import type { Warnings } from './decoded.ts';

/**
 * A key with this end says when something scaled the Service to zero: `idling.alpha.openshift.io/idled-at`, or
 * `k8s.ovn.org/idled-at` (ovn-kubernetes `go-controller/pkg/ovn/controller/unidling`).
 */
const IDLED_AT = '/idled-at';

/** The values of an annotation. */
interface Values<T> {
  /** `undefined` for a text that is none of them. */
  readonly read: (text: string) => T | undefined;
  /** What is read as this value. */
  readonly print: (value: T) => string;
  /** "a duration from 1s to 1h0m0s, such as "30s"". */
  readonly form: string;
}

interface Annotation<T> extends Values<T> {
  /** Behind {@link PREFIX}. */
  readonly name: string;
  /** It has an effect on ports of this protocol only. */
  readonly protocol?: 'TCP' | 'UDP';
  /** Why the author may expect an effect on the others, too, and there is none. */
  readonly notOthers?: string;
  /** It has an effect beside this one only. */
  readonly beside?: Option;
}

type Option = Exclude<keyof ServiceOptions, 'scheduler' | 'isIdled' | 'refused'>;

const SECOND_MS = 1_000;
const HOUR_MS = 3_600 * SECOND_MS;

/** More than a machine has descriptors. */
const MAX_CONNECTIONS = 1_048_576;

/** Workers keep a list for each value that there has been. */
const UDP_REPLAY_STEP_MS = 10;

/** A node's flags say what holds without the annotation, or the text of the option does. */
const ANNOTATIONS: { readonly [O in Option]-?: Annotation<NonNullable<ServiceOptions[O]>> } = {
  clientAddress: { name: 'client-address', ...oneOf('preserve', 'node') },
  proxyProtocol: {
    name: 'proxy-protocol',
    ...oneOf('v1', 'v2'),
    protocol: 'TCP',
    notOthers: 'only a TCP connection can begin with a header',
  },
  // Below, a healthy endpoint would seldom be waited for; above, a client has given up (resolvers wait 5 s).
  udpReplayMs: {
    name: 'udp-replay',
    ...inSteps(duration(10, 5 * SECOND_MS, '300ms'), UDP_REPLAY_STEP_MS),
    protocol: 'UDP',
  },
  // A pod seldom warms up in less, and a mistyped day would be no start.
  slowStartMs: { name: 'slow-start', ...duration(SECOND_MS, HOUR_MS, '30s') },
  waitForEndpointsMs: { name: 'wait-for-endpoints', ...zeroOr(duration(MIN_WAIT_MS, MAX_WAIT_MS, '30s')) },
  maxWaiting: { name: 'max-waiting', ...wholeNumber(1, 65_536) },
  maxConnections: { name: 'max-connections', ...wholeNumber(1, MAX_CONNECTIONS) },
  queueTimeoutMs: {
    name: 'queue-timeout',
    ...zeroOr(duration(MIN_WAIT_MS, MAX_WAIT_MS, '5s')),
    beside: 'maxConnections',
  },
  maxConnectionAgeMs: { name: 'max-connection-age', ...duration(SECOND_MS, 168 * HOUR_MS, '10m'), protocol: 'TCP' },
  drainTimeoutMs: { name: 'drain-timeout', ...zeroOr(duration(SECOND_MS, 168 * HOUR_MS, '1m')), protocol: 'TCP' },
  udpTimeoutMs: { name: 'udp-timeout', ...duration(100, HOUR_MS, '30s'), protocol: 'UDP' },
};

const ENTRIES = Object.entries(ANNOTATIONS) as readonly (readonly [Option, Annotation<unknown>])[];

const SCHEDULER = `${PREFIX}scheduler`;

/** The first that a Service has counts. Values are names of IPVS, except for Cilium's annotation. */
const SCHEDULER_ANNOTATIONS = [
  SCHEDULER,
  'kube-router.io/service.scheduler',
  'service.cilium.io/lb-algorithm',
] as const;
const OTHER_NAMES: Readonly<Record<string, string>> = { maglev: 'mh' };

const NAMES: readonly string[] = ['scheduler', ...ENTRIES.map(([, { name }]) => name)];

/** One Service may not fill the log. */
const MAX_REFUSED = 8;

type Refused = NonNullable<ServiceOptions['refused']>[number];

/**
 * What the annotations of a Service ask for; `undefined` when they ask for nothing. One of ours that cannot be read, or
 * that there is not, is refused, and the default holds: the tracker tells the Service's owner, by log and event. One
 * that has no effect on these ports is a warning.
 */
export function decodeServiceOptions(
  service: Field,
  ports: readonly ServicePortSpec[],
  warnings: Warnings,
): ServiceOptions | undefined {
  const annotations = service.get('metadata').get('annotations');
  if (!annotations.isPresent) return undefined;
  const keys = keysOf(annotations);
  const { read, refused } = readAnnotations(annotations);
  const { scheduler, refusedScheduler } = decodeScheduler(annotations);
  const unknown = unknownAmong(keys, NAMES).filter((key) => !key.endsWith(IDLED_AT));
  const all = [...refused, ...refusedScheduler, ...unknown];
  const options: ServiceOptions = {
    ...read,
    ...(scheduler !== undefined && { scheduler }),
    ...(keys.some((key) => key.endsWith(IDLED_AT)) && { isIdled: true }),
    ...(all.length > 0 && { refused: shown(all) }),
  };
  for (const [option, problem] of withoutEffect(options, ports)) {
    warnings.add(annotations.get(PREFIX + ANNOTATIONS[option].name).error(problem).problem);
  }
  return Object.keys(options).length === 0 ? undefined : options;
}

/** The annotations that are read as these options. What is refused does not come back. */
export function encodeServiceOptions(options: ServiceOptions): Readonly<Record<string, string>> {
  return Object.fromEntries([
    ...ENTRIES.flatMap(([option, { name, print }]) => {
      const { [option]: value } = options;
      return value === undefined ? [] : [[PREFIX + name, print(value)] as const];
    }),
    ...(options.scheduler === undefined ? [] : [[SCHEDULER, options.scheduler] as const]),
    ...(options.isIdled ? [[`kube-userspace-proxy${IDLED_AT}`, 'true'] as const] : []),
  ]);
}

function readAnnotations(annotations: Field): {
  readonly read: Pick<ServiceOptions, Option>;
  readonly refused: readonly Refused[];
} {
  const read: Partial<Record<Option, unknown>> = {};
  const refused: Refused[] = [];
  for (const [option, { name, read: readText, form }] of ENTRIES) {
    const { isPresent, value } = annotations.get(PREFIX + name);
    if (!isPresent) continue;
    const known = typeof value === 'string' ? readText(value) : undefined;
    if (known === undefined)
      refused.push({ what: PREFIX + name, found: `it is ${show(value)}`, advice: `write ${form}` });
    else read[option] = known;
  }
  // The type of ANNOTATIONS says that each reads what its option is.
  return { read: read as Pick<ServiceOptions, Option>, refused };
}

function* withoutEffect(options: ServiceOptions, ports: readonly ServicePortSpec[]): Generator<[Option, string]> {
  for (const [option, { protocol, notOthers, beside }] of ENTRIES) {
    if (options[option] === undefined) continue;
    const other = ports.find((port) => port.protocol !== protocol)?.protocol;
    if (protocol !== undefined && !ports.some((port) => port.protocol === protocol)) {
      yield [option, `has no effect: the Service has no ${protocol} port`];
    } else if (notOthers !== undefined && other !== undefined) {
      yield [option, `has no effect on ${other} ports: ${notOthers}`];
    } else if (beside !== undefined && options[beside] === undefined) {
      yield [option, `has no effect without ${PREFIX}${ANNOTATIONS[beside].name}`];
    }
  }
  const { waitForEndpointsMs: waitMs, isIdled = false, maxWaiting } = options;
  if (isIdled && waitMs === 0) {
    yield ['waitForEndpointsMs', 'refuses the clients of this idled Service, so none of them wakes it'];
  }
  const mayWait = waitMs === undefined ? isIdled : waitMs > 0;
  const terms = waitingTerms({ ...(mayWait && { waitMs: MAX_WAIT_MS }), options });
  if (maxWaiting !== undefined && terms === undefined) {
    const others = (['waitForEndpointsMs', 'maxConnections'] as const).map((each) => PREFIX + ANNOTATIONS[each].name);
    const elsewhere = waitMs === undefined ? ', but on nodes with --wait-for-endpoints' : '';
    yield ['maxWaiting', `has no effect without ${others.join(' or ')}${elsewhere}`];
  }
}

/** The first of them; texts are the keys that there are not. */
function shown(all: readonly (Refused | string)[]): readonly Refused[] {
  const refused = all.slice(0, MAX_REFUSED).map((each) => (typeof each === 'string' ? noSuch(each) : each));
  const more = all.length - refused.length;
  if (more === 0) return refused;
  return [
    ...refused,
    { what: `${more} more annotations`, found: 'they are wrong, too', advice: 'correct or remove them' },
  ];
}

function noSuch(key: string): Refused {
  return { what: show(key), found: 'a Service has no such annotation', advice: adviceOn(key, NAMES) };
}

function decodeScheduler(annotations: Field): {
  readonly scheduler?: SchedulerName;
  readonly refusedScheduler: readonly Refused[];
} {
  const annotation = SCHEDULER_ANNOTATIONS.find((each) => annotations.get(each).isPresent);
  if (annotation === undefined) return { refusedScheduler: [] };
  const { value } = annotations.get(annotation);
  const name = typeof value === 'string' && Object.hasOwn(OTHER_NAMES, value) ? OTHER_NAMES[value] : value;
  const found = findScheduler(typeof name === 'string' ? name : '');
  if ('name' in found) return { scheduler: found.name, refusedScheduler: [] };
  return { refusedScheduler: [{ what: `the scheduler ${show(value)} of ${annotation}`, ...found }] };
}

function oneOf<const T extends string>(...choices: readonly T[]): Values<T> {
  return { read: (text) => choices.find((each) => each === text), print: String, form: choices.join(' or ') };
}

function duration(minMs: number, maxMs: number, example: string): Values<number> {
  return {
    read: (text) => {
      const ms = parseDuration(text);
      return ms !== undefined && ms >= minMs && ms <= maxMs ? Math.round(ms) : undefined;
    },
    print: formatDuration,
    form: `a duration from ${formatDuration(minMs)} to ${formatDuration(maxMs)}, such as "${example}"`,
  };
}

/** `0` and `0s` stand for "not at all", or for "without end". */
function zeroOr({ read, print, form }: Values<number>): Values<number> {
  return { read: (text) => (parseDuration(text) === 0 ? 0 : read(text)), print, form: `"0", or ${form}` };
}

function inSteps({ read, ...values }: Values<number>, stepMs: number): Values<number> {
  return {
    ...values,
    read: (text) => {
      const ms = read(text);
      return ms === undefined ? undefined : Math.round(ms / stepMs) * stepMs;
    },
  };
}

function wholeNumber(min: number, max: number): Values<number> {
  return {
    read: (text) => {
      const value = /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN;
      return value >= min && value <= max ? value : undefined;
    },
    print: String,
    form: `a whole number from ${min} to ${max}`,
  };
}
