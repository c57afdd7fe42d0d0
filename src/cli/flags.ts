import { parseBindAddress, parseListenAddress } from './addresses.ts';
import { parseNodePortCidr } from './cidr.ts';
import { formatDuration, parseDuration } from './duration.ts';
import { parsePortRange } from './port-range.ts';
import { UsageError } from './usage-error.ts';

/** One flag: how `--help` shows it, and how its text becomes a value. */
export interface Flag<T> {
  readonly group: string;
  readonly describe: string;
  /** What applies when the flag is absent, in the form a user would write it. */
  readonly fallback: readonly string[];
  /** What `--help` shows in place of an empty fallback. */
  readonly fallbackText?: string;
  /** `--flag` alone stands for `--flag=true`. */
  readonly isSwitch?: true;
  /** Takes every occurrence in order. Throws {@link UsageError}. */
  readonly parse: (occurrences: readonly string[]) => T;
}

type Presentation = Pick<Flag<unknown>, 'group' | 'describe' | 'fallbackText' | 'isSwitch'>;

/** A flag with one value; given twice, the last wins, as with kube-proxy's pflag. */
function single<T>(fallback: string, parse: (text: string) => T, presentation: Presentation): Flag<T> {
  return { ...presentation, fallback: [fallback], parse: (occurrences) => parse(occurrences.at(-1) ?? fallback) };
}

/** A flag that may be repeated, each time with one value or several between commas. */
function list<T>(parse: (text: string) => T, presentation: Presentation): Flag<readonly T[]> {
  return {
    ...presentation,
    fallback: [],
    parse: (occurrences) =>
      occurrences.flatMap((text) => (text === '' ? [] : text.split(','))).map((text) => parse(text.trim())),
  };
}

/** setTimeout takes no more (24.8 days); beyond it, it fires at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

function duration(text: string): number {
  const ms = parseDuration(text);
  if (ms === undefined) {
    throw new UsageError('not a duration; write numbers with units, such as 250ms, 30s or 1h30m');
  }
  if (ms < 0) throw new UsageError('must not be negative');
  if (ms > MAX_TIMER_MS) throw new UsageError(`must be at most ${formatDuration(MAX_TIMER_MS)}`);
  return ms;
}

function positiveDuration(text: string): number {
  const ms = duration(text);
  if (ms === 0) throw new UsageError('must be above zero');
  return ms;
}

function integer(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= min && value <= max)) throw new UsageError(`must be a whole number from ${min} to ${max}`);
    return value;
  };
}

function oneOf<const T extends string>(...choices: readonly T[]): (text: string) => T {
  return (text) => {
    const choice = choices.find((candidate) => candidate === text);
    if (choice === undefined) throw new UsageError(`must be one of ${choices.join(', ')}`);
    return choice;
  };
}

/** The spellings of Go's `strconv.ParseBool`. */
function boolean(text: string): boolean {
  if (['1', 't', 'T', 'TRUE', 'true', 'True'].includes(text)) return true;
  if (['0', 'f', 'F', 'FALSE', 'false', 'False'].includes(text)) return false;
  throw new UsageError('must be true or false');
}

function path(text: string): string {
  if (text === '') throw new UsageError('names no file or directory');
  return text;
}

const DNS_SUBDOMAIN = /^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/;

/** Trimmed and in lower case, as upstream's `nodeutil.GetHostname`; then it must be what a Node may be named. */
function nodeName(text: string): string | undefined {
  const name = text.trim().toLowerCase();
  if (name === '') return undefined;
  if (name.length > 253 || !DNS_SUBDOMAIN.test(name)) {
    throw new UsageError(
      'not a node name: letters, digits, "-" and "." only, each part beginning and ending without "-"',
    );
  }
  return name;
}

const SOURCE = 'Services come from:';
const LISTENING = 'Listening:';
const CONNECTIONS = 'Connections and flows:';
const RULES = 'iptables rules:';
const OBSERVING = 'Health, metrics and log:';

/** What the kernel allows at most as a process's descriptors by default (fs.nr_open). */
const MAX_DESCRIPTORS = 1_048_576;
/** Close to what a JavaScript Map holds (2²⁴). */
const MAX_CLIENTS = 10_000_000;

function optional(text: string): string | undefined {
  return text === '' ? undefined : text;
}

/** client-go takes a float for QPS. */
function positiveNumber(text: string): number {
  const value = /^\d{1,9}(\.\d{1,9})?$/.test(text) ? Number(text) : 0;
  if (value === 0) throw new UsageError('must be a number above zero, such as 5 or 0.5');
  return value;
}

/** Names and defaults are kube-proxy's wherever it has the flag. */
export const FLAGS = {
  kubeconfig: single('', optional, {
    group: SOURCE,
    fallbackText: 'the service account of the Pod',
    describe: 'how to reach the API server whose Services are served',
  }),
  master: single('', optional, {
    group: SOURCE,
    fallbackText: 'what the kubeconfig says',
    describe: 'URL of the API server, whatever the kubeconfig or the environment of the Pod says',
  }),
  manifests: list(path, {
    group: SOURCE,
    describe:
      'files or directories with Service, Endpoints and EndpointSlice objects, YAML or JSON, instead of an API server; ' +
      'repeat it or separate with commas; changes take effect while running',
  }),
  'hostname-override': single('', nodeName, {
    group: SOURCE,
    fallbackText: 'the host name',
    describe: 'name of the Node object of this machine',
  }),
  'kube-api-qps': single('5', positiveNumber, {
    group: SOURCE,
    describe: 'requests per second to the API server in the long term; watches do not count',
  }),
  'kube-api-burst': single('10', integer(1, 1_000_000), {
    group: SOURCE,
    describe: 'requests that may follow each other at once',
  }),
  'kube-api-content-type': single('application/vnd.kubernetes.protobuf', (text) => text, {
    group: SOURCE,
    describe: 'accepted for compatibility: JSON is what is spoken',
  }),
  'config-sync-period': single('15m', positiveDuration, {
    group: SOURCE,
    describe: 'accepted for compatibility: a change is never missed, so nothing has to be read again',
  }),

  'bind-address': single('0.0.0.0', parseBindAddress, {
    group: LISTENING,
    describe: 'address for the local port of each Service port; one other than 0.0.0.0 switches from REDIRECT to DNAT',
  }),
  'proxy-port-range': single('', parsePortRange, {
    group: LISTENING,
    fallbackText: 'any free port',
    describe: 'local ports to choose from: a-b, a+n or n',
  }),
  'nodeport-addresses': list(parseNodePortCidr, {
    group: LISTENING,
    fallbackText: 'every address of the node',
    describe: 'CIDRs of node addresses that serve NodePorts; repeat it or separate with commas',
  }),

  dataplane: single('auto', oneOf('auto', 'fast', 'node'), {
    group: CONNECTIONS,
    describe: 'engine that carries the traffic: fast runs worker threads on libc, node is portable; auto prefers fast',
  }),
  workers: single('', (text) => (text === '' ? undefined : integer(1, 64)(text)), {
    group: CONNECTIONS,
    fallbackText: 'half the cores',
    describe: 'threads of the fast engine; each Service port belongs to one of them',
  }),
  'tcp-half-open-timeout': single('5m', positiveDuration, {
    group: CONNECTIONS,
    describe: 'ends a TCP connection that is closed in one direction and silent in the other for so long',
  }),
  'udp-timeout': single('250ms', positiveDuration, {
    group: CONNECTIONS,
    describe: 'ends a UDP flow that has been silent for so long',
  }),
  'udp-first-reply-timeout': single('5s', positiveDuration, {
    group: CONNECTIONS,
    describe: 'the same for a flow that waits for its first reply (a slow DNS answer); never below --udp-timeout',
  }),
  'udp-max-flows-per-service': single('4096', integer(1, MAX_DESCRIPTORS), {
    group: CONNECTIONS,
    describe:
      'UDP flows of one Service port; datagrams of further clients are dropped, so that a flood of forged ' +
      'senders at one Service cannot use up the flows of the others',
  }),
  'udp-max-flows': single('16384', integer(1, MAX_DESCRIPTORS), {
    group: CONNECTIONS,
    describe: 'UDP flows in all; each takes one descriptor, so keep it below the limit on open files (ulimit -n)',
  }),
  // 65536 is a whole IPv4 /16 of pods, for about 8 MB per Service port when full; upstream remembers without bound.
  'affinity-max-clients': single('65536', integer(1, MAX_CLIENTS), {
    group: CONNECTIONS,
    describe:
      'clients remembered per Service port with ClientIP affinity, about 120 bytes each; beyond it, the one ' +
      'unseen for longest may be sent to another endpoint',
  }),

  'iptables-mode': single('auto', oneOf('auto', 'nft', 'legacy'), {
    group: RULES,
    describe: 'which iptables to drive: auto takes the one that the node already uses',
  }),
  'iptables-sync-period': single('30s', positiveDuration, {
    group: RULES,
    describe: 'rules that something else removed are back within this time',
  }),
  'iptables-min-sync-period': single('1s', duration, {
    group: RULES,
    describe: 'shortest time between two syncs when changes come thick and fast; the first is applied at once',
  }),
  cleanup: single('false', boolean, {
    group: RULES,
    isSwitch: true,
    describe: 'remove every rule and chain of the proxy, IPv4 and IPv6, and exit; no source of Services is needed',
  }),

  'healthz-bind-address': single('0.0.0.0:10256', (text) => parseListenAddress(text, 10256), {
    group: OBSERVING,
    describe: 'ip or ip:port that serves /healthz; "" for none',
  }),
  'metrics-bind-address': single('127.0.0.1:10249', (text) => parseListenAddress(text, 10249), {
    group: OBSERVING,
    describe: 'ip or ip:port that serves /metrics, /proxyMode and /healthz; "" for none',
  }),
  v: single('0', integer(0, 10), {
    group: OBSERVING,
    describe: 'how much the log says, from 0 to 10',
  }),
  'log-format': single('auto', oneOf('auto', 'text', 'json'), {
    group: OBSERVING,
    describe: 'auto: text on a terminal, one JSON object per line elsewhere',
  }),
} satisfies Record<string, Flag<unknown>>;

export type FlagName = keyof typeof FLAGS;
export type FlagValues = { readonly [N in FlagName]: ReturnType<(typeof FLAGS)[N]['parse']> };
