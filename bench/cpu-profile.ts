/**
 * The part of a `.cpuprofile` (Chrome DevTools protocol, Profiler.Profile) that is read here. Times in microseconds.
 */
export interface CpuProfile {
  readonly nodes: readonly {
    readonly id: number;
    readonly callFrame: { readonly functionName: string; readonly url: string; readonly lineNumber: number };
  }[];
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

export interface SelfTimes {
  /** All but idle time. */
  readonly busyMs: number;
  /** The longest first. */
  readonly functions: readonly { readonly name: string; readonly ms: number }[];
}

export function selfTimes({ nodes, samples, timeDeltas }: CpuProfile): SelfTimes {
  const names = new Map(nodes.map(({ id, callFrame }) => [id, describe(callFrame)]));
  const times = new Map<string, number>();
  samples.forEach((id, i) => {
    const name = names.get(id) ?? '(unknown)';
    // A delta is the time since the sample before, so what is running now has the next one.
    times.set(name, (times.get(name) ?? 0) + (timeDeltas[i + 1] ?? 0) / 1000);
  });
  times.delete('(idle)');
  const functions = [...times].map(([name, ms]) => ({ name, ms })).sort((a, b) => b.ms - a.ms);
  return { busyMs: functions.reduce((sum, { ms }) => sum + ms, 0), functions };
}

function describe({ functionName, url, lineNumber }: CpuProfile['nodes'][number]['callFrame']): string {
  const name = functionName || '(anonymous)';
  const file = url.split('/').slice(-2).join('/');
  return file === '' ? name : `${name}  ${file}:${lineNumber + 1}`;
}
