import type { KernelNumber } from '../../kernel/host-settings.ts';
import { descriptorLimit } from '../../kernel/process.ts';
import { type Finding, ok, warn } from './finding.ts';
import { numberIn, type ReadFile } from './kernel-files.ts';

const MIB = 1 << 20;
/** What a proxy with some hundred Services takes; 10,000 take 210 MB (docs/performance.md). */
const NEEDED_MIB = 256;

/** Beside what UDP flows may take: two for each TCP connection, one for each Service port. */
const SPARE_DESCRIPTORS = 4_096;

const CROWDED = 0.9;

const LOW_BACKLOG = 1_024;

/** How many descriptors a process that is started as this one was may have. */
export function checkDescriptors(read: ReadFile, udpMaxFlows: number): readonly Finding[] {
  const limit = descriptorLimit(read('/proc/self/limits') ?? '');
  if (limit === undefined) return [ok('no limit on open files is known')];
  const needed = udpMaxFlows + SPARE_DESCRIPTORS;
  if (limit >= needed) return [ok(`${limit} open files`)];
  return [
    warn(
      `only ${limit} open files, with up to ${udpMaxFlows} UDP flows and two for each TCP connection`,
      `raise the limit to ${needed} or more (LimitNOFILE= of the unit, ulimit -n), or lower --udp-max-flows`,
    ),
  ];
}

/** Whether connection tracking has room for new connections, and whether its limits will be as flags ask. */
export function checkConntrack(
  read: ReadFile,
  { wanted, isWritable }: { readonly wanted: readonly KernelNumber[]; readonly isWritable: (path: string) => boolean },
): readonly Finding[] {
  const max = numberIn(read, '/proc/sys/net/netfilter/nf_conntrack_max');
  const count = numberIn(read, '/proc/sys/net/netfilter/nf_conntrack_count');
  if (max === undefined) return [ok('connection tracking is not loaded yet; the first rule loads it')];
  const findings: Finding[] = [];
  if (count !== undefined && count >= CROWDED * max) {
    findings.push(
      warn(
        `connection tracking has ${count} entries of at most ${max}; when it is full, new connections are dropped`,
        'raise net.netfilter.nf_conntrack_max, or --conntrack-max-per-core',
      ),
    );
  } else {
    findings.push(ok(`connection tracking has ${count ?? '?'} entries of at most ${max}`));
  }
  const refused = wanted.filter(({ path, value, isFloor }) => {
    const current = numberIn(read, path);
    const isThere = current === value || (isFloor === true && current !== undefined && current > value);
    return !isThere && !isWritable(path);
  });
  if (refused.length > 0) {
    findings.push(
      warn(
        `these cannot be set from here: ${refused.map(({ path, value }) => `${path}=${value}`).join(', ')}`,
        'set them on the host, run --init-only with the rights, or use flags that do not ask for them (--conntrack-max-per-core 0 and the like)',
      ),
    );
  }
  return findings;
}

/** How many clients may wait for a listener to accept them. */
export function checkBacklog(read: ReadFile): readonly Finding[] {
  const most = numberIn(read, '/proc/sys/net/core/somaxconn');
  if (most === undefined || most >= LOW_BACKLOG) return [];
  return [
    warn(
      `net.core.somaxconn is ${most}: so many clients of a Service may wait to be accepted, and a burst beyond it is dropped`,
      `raise it to 4096`,
    ),
  ];
}

/** What this machine has left, and what the container may have. */
export function checkMemory(read: ReadFile): readonly Finding[] {
  const available = Number(/^MemAvailable:\s+(\d+) kB$/m.exec(read('/proc/meminfo') ?? '')?.[1] ?? Number.NaN) / 1_024;
  // Of the container, where it sees itself as the root; "max" without a limit.
  const limit = (numberIn(read, '/sys/fs/cgroup/memory.max') ?? Number.NaN) / MIB;
  const findings: Finding[] = [];
  if (available < NEEDED_MIB) {
    findings.push(
      warn(
        `${Math.round(available)} MiB of memory are left on this machine`,
        `have ${NEEDED_MIB} MiB for the proxy, more with thousands of Services, and twice as much for upgrades in place`,
      ),
    );
  }
  if (limit < NEEDED_MIB) {
    findings.push(
      warn(
        `the memory limit of this container is ${Math.round(limit)} MiB; reaching it ends every connection`,
        `raise it to ${NEEDED_MIB} MiB or more, or take it away`,
      ),
    );
  }
  if (findings.length > 0 || Number.isNaN(available)) return findings;
  return [ok(`${Math.round(available)} MiB of memory available`)];
}
