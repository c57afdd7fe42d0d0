import { readFileSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import type { ConntrackSettings, HostSettings, MachineSettings } from '../model/host-settings.ts';
import type { Log } from '../util/log.ts';

/** A number in a file of the kernel, below `/proc` or `/sys`. */
interface KernelNumber {
  readonly path: string;
  readonly value: number;
  /** A higher value is left alone: the limits of conntrack are shared by the whole machine. */
  readonly isFloor?: true;
}

/** As upstream: an entry takes about 300 bytes, so a machine with many cores must not request gigabytes. */
const MAX_SCALED_ENTRIES = 1_048_576;

const NETFILTER = '/proc/sys/net/netfilter';
/** The kernel's own proportion. */
const ENTRIES_PER_BUCKET = 4;

/** The kernel's numbers for these settings (upstream's `pkg/proxy/conntrack/sysctls.go`). */
export function conntrackNumbers(conntrack: ConntrackSettings, cores: number): KernelNumber[] {
  const numbers: KernelNumber[] = [];
  if (conntrack.maxPerCore > 0) {
    const scaled = Math.min(conntrack.maxPerCore * cores, MAX_SCALED_ENTRIES);
    const entries = Math.max(scaled, conntrack.min);
    numbers.push({ path: `${NETFILTER}/nf_conntrack_max`, value: entries, isFloor: true });
    numbers.push({
      path: '/sys/module/nf_conntrack/parameters/hashsize',
      value: Math.floor(entries / ENTRIES_PER_BUCKET),
      isFloor: true,
    });
  }
  const timeouts = {
    nf_conntrack_tcp_timeout_established: conntrack.tcpEstablishedTimeoutMs,
    nf_conntrack_tcp_timeout_close_wait: conntrack.tcpCloseWaitTimeoutMs,
    nf_conntrack_udp_timeout: conntrack.udpTimeoutMs,
    nf_conntrack_udp_timeout_stream: conntrack.udpStreamTimeoutMs,
  };
  for (const [name, ms] of Object.entries(timeouts)) {
    if (ms > 0) numbers.push({ path: `${NETFILTER}/${name}`, value: Math.floor(ms / 1_000) });
  }
  if (conntrack.tcpBeLiberal) numbers.push({ path: `${NETFILTER}/nf_conntrack_tcp_be_liberal`, value: 1 });
  return numbers;
}

export const TW_REUSE = '/proc/sys/net/ipv4/tcp_tw_reuse';

/**
 * Settings that outlive this process. When a client closes first, the proxy closes first towards the endpoint, and its
 * local port stays in TIME_WAIT for a minute: 28,232 ports allow 470 connections a second to one endpoint. With
 * tcp_tw_reuse 1, the kernel reuses such a port after a second (`tcp_tw_reuse_delay`), provided that both ends use
 * timestamps; the default, 2, means loopback only. It applies to both families, in this network namespace only.
 */
function machineNumbers({ tcpTwReuse, conntrack }: MachineSettings, cores: number): KernelNumber[] {
  const reuse = tcpTwReuse ? [{ path: TW_REUSE, value: 1 }] : [];
  return [...reuse, ...conntrackNumbers(conntrack, cores)];
}

/** Applies the settings of this process and of its machine. */
export function applyHostSettings(settings: HostSettings, log: Log): void {
  const own = { path: '/proc/self/oom_score_adj', value: settings.oomScoreAdj };
  setKernelNumbers([own, ...machineNumbers(settings, cpus().length)], log);
}

export function applyMachineSettings(settings: MachineSettings, log: Log): void {
  setKernelNumbers(machineNumbers(settings, cpus().length), log);
}

/** Sets all of these; one warning names those that the kernel refuses. */
export function setKernelNumbers(numbers: readonly KernelNumber[], log: Log): void {
  const refused: string[] = [];
  for (const { path, value, isFloor } of numbers) {
    try {
      const current = Number(readFileSync(path, 'utf8'));
      if (current === value || (isFloor && current > value)) continue;
      writeFileSync(path, String(value));
      log.v(1)?.info('Set a kernel parameter', { file: path, value, before: current });
    } catch (error) {
      refused.push(`${path}=${value} (${(error as NodeJS.ErrnoException).code})`);
    }
  }
  if (refused.length === 0) return;
  log.warn(
    'The kernel refused some settings, and they stay as they are; set them on the host, or run the proxy with the ' +
      'right to set them, or with flags that do not ask for them',
    { err: refused.join(', ') },
  );
}
