import type { PortRange } from '../model/address.ts';
import {
  type Address,
  type Cidr,
  familyOf,
  isWildcard,
  parseAddress,
  parseCidr,
  specialAddressReason,
} from '../model/address.ts';
import { DEFAULT_SCHEDULER, findScheduler, type SchedulerName } from '../model/scheduler.ts';
import { formatDuration, parseDuration } from '../util/duration.ts';
import { foundText } from '../util/found.ts';
import { UsageError } from './usage-error.ts';

/*
 * What the text of a setting becomes. Each throws UsageError with a clause that follows the flag and its text.
 */

/** The longest delay of setTimeout (24.8 days). A longer timer fires at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;
export const MAX_INT32 = 2 ** 31 - 1;

/** In milliseconds. */
export function duration(text: string): number {
  const ms = parseDuration(text);
  if (ms === undefined) {
    throw new UsageError('not a duration; write numbers with units, such as 250ms, 30s or 1h30m');
  }
  if (ms < 0) throw new UsageError('must not be negative');
  if (ms > MAX_TIMER_MS) throw new UsageError(`must be at most ${formatDuration(MAX_TIMER_MS)}`);
  return ms;
}

export function positiveDuration(text: string): number {
  const ms = duration(text);
  if (ms === 0) throw new UsageError('must be above zero');
  return ms;
}

export function durationWithin(minMs: number, maxMs: number): (text: string) => number {
  return (text) => {
    const ms = duration(text);
    if (ms >= minMs && ms <= maxMs) return ms;
    throw new UsageError(`must be from ${formatDuration(minMs)} to ${formatDuration(maxMs)}`);
  };
}

/** 0, or what `parse` accepts. */
export function zeroOr(parse: (text: string) => number): (text: string) => number {
  return (text) => (duration(text) === 0 ? 0 : parse(text));
}

/** A timeout that the kernel counts in seconds; 0 leaves it as it is. In milliseconds. */
export function kernelTimeout(text: string): number {
  const ms = duration(text);
  // Upstream rounds it down to 0, which makes conntrack forget at once.
  if (ms > 0 && ms < 1_000) throw new UsageError('must be at least 1s, or 0 to leave it as it is');
  return ms;
}

export function integer(min: number, max: number): (text: string) => number {
  return (text) => {
    // Plus zero turns -0 into 0.
    const value = /^-?\d{1,15}$/.test(text) ? Number(text) + 0 : Number.NaN;
    if (!(value >= min && value <= max)) throw new UsageError(`must be a whole number from ${min} to ${max}`);
    return value;
  };
}

/** The spellings of Go's `strconv.ParseBool`. */
export function boolean(text: string): boolean {
  if (['1', 't', 'T', 'TRUE', 'true', 'True'].includes(text)) return true;
  if (['0', 'f', 'F', 'FALSE', 'false', 'False'].includes(text)) return false;
  throw new UsageError('must be true or false');
}

export function path(text: string): string {
  if (text === '') throw new UsageError('names no file or directory');
  return text;
}

/** With a scheme: `--master` takes a bare address for one over plain HTTP, as upstream does. */
export function apiServer(text: string): URL {
  const url = URL.parse(text);
  const isPlain = url?.username === '' && url.password === '' && url.search === '' && url.hash === '';
  if (url === null || !isPlain || !/^https?:$/.test(url.protocol) || url.hostname === '') {
    throw new UsageError('not the URL of an API server; write one like https://192.0.2.1:6443');
  }
  return url;
}

export function optional(text: string): string | undefined {
  return text === '' ? undefined : text;
}

/** The name of a network interface, or its beginning. Stricter than the kernel, so that it is one word of a rule. */
export function interfaceName(maxLength: number): (text: string) => string {
  return (text) => {
    if (text === '' || (text.length <= maxLength && /^[A-Za-z0-9_.][A-Za-z0-9_.-]*$/.test(text))) return text;
    throw new UsageError(
      `not a name of a network interface: at most ${maxLength} letters, digits, "-", "_" and ".", and no "-" in front`,
    );
  };
}

/** The kernel's TCP_CA_NAME_MAX, without the final NUL. Whether this kernel has it is asked later. */
export function congestionControl(text: string): string {
  if (text === '' || /^[a-z0-9_-]{1,15}$/.test(text)) return text;
  throw new UsageError('not a name of a congestion control, such as cubic or bbr');
}

/** client-go takes a float for QPS. */
export function positiveNumber(text: string): number {
  const value = /^\d{1,9}(\.\d{1,9})?$/.test(text) ? Number(text) : 0;
  if (value === 0) throw new UsageError('must be a number above zero, such as 5 or 0.5');
  return value;
}

const DNS_SUBDOMAIN = /^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/;

/** Trimmed and in lower case, as upstream's `nodeutil.GetHostname`. It must be a valid name of a Node. */
export function nodeName(text: string): string | undefined {
  const name = text.trim().toLowerCase();
  if (name === '') return undefined;
  if (name.length > 253 || !DNS_SUBDOMAIN.test(name)) {
    throw new UsageError(
      'not a node name: letters, digits, "-" and "." only, each part beginning and ending without "-"',
    );
  }
  return name;
}

/** Only the userspace mode is accepted. */
export function proxyMode(text: string): 'userspace' {
  if (text === '' || text === 'userspace') return 'userspace';
  throw new UsageError(
    'this program is the userspace mode and has no other; write userspace, omit it, or run kube-proxy instead',
  );
}

/** One of `--feature-gates`: `Name=true`. */
export function featureGate(text: string): readonly [name: string, on: boolean] {
  const [, name = '', on = ''] = /^([A-Za-z0-9_]+)=(.*)$/s.exec(text) ?? [];
  if (name === '') throw new UsageError('not a feature gate; write Name=true or Name=false');
  return [name, boolean(on.trim())];
}

/** One of `--vmodule`: `pattern=N`. */
export function verbosityOfFile(text: string): string {
  if (!/^[^=]+=\d{1,9}$/.test(text)) throw new UsageError('not a pattern and a level; write pattern=N');
  return text;
}

/** A Kubernetes quantity: `512`, `1K`, `2Ki`. */
export function quantity(text: string): string {
  if (!/^\d{1,15}(\.\d{1,9})?(m|k|K|[KMGTPE]i|[MGTPE])?$/.test(text)) {
    throw new UsageError('not a quantity; write one such as 512, 3M or 4Gi');
  }
  return text;
}

const MAX_PORT = 65_535;

/** Where an HTTP server listens. Port 0 lets the kernel choose. */
export interface ListenAddress {
  readonly address: Address;
  readonly port: number;
}

/** The address that the proxy's local ports listen on. */
export function parseBindAddress(text: string): Address {
  const address = parseAddress(text);
  if (address === undefined) throw new UsageError('not an IP address; write one such as 0.0.0.0 or 192.0.2.10');
  const reason = specialAddressReason(address);
  if (reason === 'loopback') {
    // Upstream refuses only 127.0.0.1 and ::1 (`pkg/proxy/userspace/proxier.go`); the rest of 127/8 fails alike.
    throw new UsageError(
      'clients on the network and in pods cannot reach a loopback address: the kernel drops packets that are ' +
        'redirected to it; use 0.0.0.0 or an address of this node',
    );
  }
  // A link-local address of IPv6 means nothing without its interface, and cannot be the target of NAT.
  const isLinkLocalIPv4 = reason === 'link-local' && familyOf(address) === 'IPv4';
  if (!isWildcard(address) && reason !== undefined && !isLinkLocalIPv4) {
    throw new UsageError(
      `a ${reason} address cannot be listened on for Services; use 0.0.0.0 or an address of this node`,
    );
  }
  return address;
}

/**
 * `ip` or `ip:port`, IPv6 with a port in brackets; a missing port is `defaultPort`; the empty text switches the server
 * off (k8s.io/kubernetes `pkg/util/flag` IPPortVar, `pkg/cluster/ports` defaults).
 */
export function parseListenAddress(text: string, defaultPort: number): ListenAddress | undefined {
  if (text === '') return undefined;
  const whole = parseAddress(text);
  if (whole !== undefined) return { address: whole, port: defaultPort };

  const match = /^(?:\[(?<v6>[^\]]*)\]|(?<v4>[^:[\]]*)):(?<port>\d{1,5})$/.exec(text);
  const { v6, v4, port } = match?.groups ?? {};
  const address = parseAddress(v6 ?? v4 ?? '');
  const bracketed = v6 !== undefined;
  if (address === undefined || Number(port) > MAX_PORT || bracketed !== (familyOf(address) === 'IPv6')) {
    throw new UsageError(
      `not ip or ip:port; write one such as 127.0.0.1:${defaultPort} or [::1]:${defaultPort}, or "" for no server`,
    );
  }
  return { address, port: Number(port) };
}

/** Whether both would listen on one port of one address. A wildcard covers both families. */
export function collide(a: ListenAddress, b: ListenAddress): boolean {
  if (a.port !== b.port || a.port === 0) return false;
  const covers = (one: Address, other: Address) => one === other || isWildcard(one);
  return covers(a.address, b.address) || covers(b.address, a.address);
}

/** The addresses that the Node object names, those of loopback, and all. */
const NODE_PORT_KEYWORDS = ['primary', 'localhost', 'all'] as const;

/** One of `--nodeport-addresses`, as upstream takes them since KEP-6032 (`cmd/kube-proxy/app/options.go`). */
export type NodePortAddresses = Cidr | (typeof NODE_PORT_KEYWORDS)[number];

export function cidr(text: string): Cidr {
  const parsed = parseCidr(text);
  if (parsed === undefined) {
    throw new UsageError('not a CIDR; write an address and a prefix length, such as 192.0.2.0/24');
  }
  return parsed;
}

export function nodePortAddresses(text: string): NodePortAddresses {
  return NODE_PORT_KEYWORDS.find((keyword) => keyword === text) ?? cidr(text);
}

export function showCidr(shown: NodePortAddresses): string {
  return typeof shown === 'string' ? shown : `${shown.network}/${shown.prefixLength}`;
}

/**
 * `a-b`, `a+n` (from a to a+n) or a single `n`, as `PortRange.Set` in k8s.io/apimachinery `pkg/util/net/port_range.go`.
 * `undefined` stands for any port: the empty text, `0` and `0-0`.
 *
 * Upstream's allocator ignores the upper end of a range that begins at 0, so such a range is refused here.
 */
export function parsePortRange(text: string): PortRange | undefined {
  const value = text.trim();
  if (value === '') return undefined;
  const match = /^(\d+)(?:([-+])(\d+))?$/.exec(value);
  if (match === null) throw new UsageError('not a port range: write a-b, a+n or a single port, such as 30000-32767');
  const [, start, notation, end] = match;
  const first = Number(start);
  const last = notation === '+' ? first + Number(end) : Number(end ?? start);
  if (first > MAX_PORT || last > MAX_PORT) throw new UsageError(`ports end at ${MAX_PORT}`);
  if (last < first) throw new UsageError('the last port is below the first');
  if (first === 0 && last > 0) throw new UsageError('a range begins at port 1 or above; 0-0 or "" stands for any port');
  return first === 0 ? undefined : { first, last };
}

/** The same, but for some ports. */
export function ports(text: string): PortRange {
  const range = parsePortRange(text);
  if (range === undefined) throw new UsageError('not a port; write a-b, a+n or a single port, such as 9100');
  return range;
}

/** In the form that {@link parsePortRange} reads. */
export function showPortRange(range: PortRange | undefined): string {
  return range === undefined ? '' : `${range.first}-${range.last}`;
}

export const DEFAULT_CONTROL_SOCKET = '/run/kube-userspace-proxy/control.sock';

/** The kernel takes 107 bytes. Eight are for the directory in which the socket is made before it is renamed. */
const MAX_BYTES = 99;

/** Where a Unix socket is; `undefined` for none. */
export function parseSocket(text: string): string | undefined {
  const path = filePath(text, 'socket');
  if (Buffer.byteLength(text) > MAX_BYTES) throw new UsageError(`must be at most ${MAX_BYTES} bytes long`);
  return path;
}

/** The file of the connection log; `undefined` for none. */
export function parseLogFile(text: string): string | undefined {
  return filePath(text, 'file');
}

function filePath(text: string, what: string): string | undefined {
  if (text === '') return undefined;
  if (!text.startsWith('/') || text.endsWith('/') || text.includes('\0')) {
    throw new UsageError(`not the absolute path of a file; write "" for no such ${what}`);
  }
  return text;
}

/** Of `--state-dir`; `undefined` for none. */
export function parseStateDirectory(text: string): string | undefined {
  if (text === '') return undefined;
  if (!text.startsWith('/') || text.includes('\0')) {
    throw new UsageError('not the absolute path of a directory; write "" for none');
  }
  return text;
}

const UNIX = 'unix://';

/** The path of the socket; `undefined` for none. As the kubelet takes it, which also takes a bare path. */
export function parseCriEndpoint(text: string): string | undefined {
  if (text === '') return undefined;
  const path = text.startsWith(UNIX) ? text.slice(UNIX.length) : text;
  if (path.startsWith('/') && !path.endsWith('/') && !path.includes('\0')) return path;
  throw new UsageError('not the address of a Unix socket, such as unix:///run/containerd/containerd.sock');
}

/** Of IPVS; empty stands for the default, as in kube-proxy. */
export function scheduler(text: string): SchedulerName {
  const found = findScheduler(text === '' ? DEFAULT_SCHEDULER : text);
  if ('found' in found) throw new UsageError(foundText(found));
  return found.name;
}
