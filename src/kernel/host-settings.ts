import { readFileSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import type { ConntrackSettings, HostSettings, MachineSettings } from '../model/host-settings.ts';
import type { Log } from '../util/log.ts';

/** A number in a file of the kernel's, below `/proc` or `/sys`. */
export interface KernelNumber {
  readonly path: string;
  readonly value: number;
  /** More than this is left as it is: the limits of conntrack are the whole machine's. */
  readonly isFloor?: true;
}

/** As upstream's: an entry takes about 300 bytes, so that many cores must not ask for gigabytes. */
const MAX_SCALED_ENTRIES = 1_048_576;

const NETFILTER = '/proc/sys/net/netfilter';
/** The kernel's own proportion. */
const ENTRIES_PER_BUCKET = 4;

/** What the settings mean to the kernel (upstream's `pkg/proxy/conntrack/sysctls.go`). */
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
 * What outlives this process. A client that closes first has the proxy close first towards the endpoint, and there the
 * local port is in TIME_WAIT for a minute: 28,232 ports are 470 connections a second to one endpoint. With 1, the kernel
 * gives such a port to the next connection after a second (`tcp_tw_reuse_delay`), where both ends have timestamps; 2, the
 * kernel's default, means loopback only. For both families, and of this network namespace alone.
 */
function machineNumbers({ tcpTwReuse, conntrack }: MachineSettings, cores: number): KernelNumber[] {
  const reuse = tcpTwReuse ? [{ path: TW_REUSE, value: 1 }] : [];
  return [...reuse, ...conntrackNumbers(conntrack, cores)];
}

/** For this process and the machine that it runs on. */
export function applyHostSettings(settings: HostSettings, log: Log): void {
  const own = { path: '/proc/self/oom_score_adj', value: settings.oomScoreAdj };
  setKernelNumbers([own, ...machineNumbers(settings, cpus().length)], log);
}

export function applyMachineSettings(settings: MachineSettings, log: Log): void {
  setKernelNumbers(machineNumbers(settings, cpus().length), log);
}

/** Asks the kernel for all of them; what it refuses is told in one warning and stays as it is. */
export function setKernelNumbers(numbers: readonly KernelNumber[], log: Log): void {
  const refused: string[] = [];
  for (const { path, value, isFloor } of numbers) {
    try {
      const current = Number(readFileSync(path, 'utf8'));
      if (current === value || (isFloor && current > value)) continue;
      writeFileSync(path, String(value));
      log.v(1)?.info('Set a number of the kernel', { file: path, value, before: current });
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
