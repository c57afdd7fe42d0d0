import { readFileSync, writeFileSync } from 'node:fs';
import type { Namespace } from '../test/netns/topology.ts';

/** What nearly every distribution has as its default, and what some operators choose instead. */
export type CongestionControl = 'cubic' | 'bbr';

const AVAILABLE = '/proc/sys/net/ipv4/tcp_available_congestion_control';
const ALLOWED = '/proc/sys/net/ipv4/tcp_allowed_congestion_control';

/** Why these cannot be used on this machine. */
export function missingCongestionControl(name: CongestionControl): string | undefined {
  return names(AVAILABLE).includes(name) ? undefined : `this kernel has no ${name}; "modprobe tcp_${name}" may load it`;
}

/**
 * For every TCP connection that begins in these namespaces from now on. A new namespace inherits the machine's default,
 * which would be measured in place of the candidates.
 */
export async function useCongestionControl(name: CongestionControl, namespaces: readonly Namespace[]): Promise<void> {
  allow(name);
  const setting = `echo ${name} > /proc/sys/net/ipv4/tcp_congestion_control`;
  await Promise.all(namespaces.map((namespace) => namespace.output(['sh', '-c', setting])));
}

/**
 * Namespaces may use only what the machine allows to everybody. This changes no connection, so it stays: another
 * benchmark may be running.
 */
function allow(name: CongestionControl): void {
  const allowed = names(ALLOWED);
  if (allowed.includes(name)) return;
  const value = [...allowed, name].join(' ');
  try {
    writeFileSync(ALLOWED, value);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new Error(
      `cannot allow ${name} in network namespaces (${code}); on the host, run: ` +
        `sysctl -w net.ipv4.tcp_allowed_congestion_control="${value}"`,
    );
  }
}

function names(path: string): string[] {
  return readFileSync(path, 'utf8').trim().split(/\s+/);
}
