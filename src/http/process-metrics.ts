import { readdir, stat } from 'node:fs/promises';
import { collectDefaultMetrics, Gauge, Registry } from 'prom-client';
import type { LoopDelayMs } from '../model/metrics.ts';

const LATENESS = "lateness of the main thread's event loop, sampled between two scrapes";

const LOOP_DELAY: Readonly<Record<keyof LoopDelayMs, string>> = {
  min: `Least ${LATENESS}`,
  max: `Greatest ${LATENESS}`,
  mean: `Mean ${LATENESS}`,
  stddev: `Standard deviation of the ${LATENESS}`,
  p50: `Median ${LATENESS}`,
  p90: `90th percentile of the ${LATENESS}`,
  p99: `99th percentile of the ${LATENESS}`,
};

/**
 * prom-client's default metrics that are served, with help texts of this program. The ones that list every open handle
 * or descriptor are left out: with ten thousand listeners they take several milliseconds of the event loop in each
 * scrape.
 */
const DEFAULTS = {
  process_cpu_user_seconds_total: 'Processor time in user space',
  process_cpu_system_seconds_total: 'Processor time in the kernel',
  process_cpu_seconds_total: 'Processor time, in user space and in the kernel',
  process_start_time_seconds: 'When the process started, since 1970',
  process_resident_memory_bytes: 'Memory that is in RAM',
  process_virtual_memory_bytes: 'Size of the address space',
  process_heap_bytes: 'Size of the data segment',
  process_max_fds: 'How many descriptors may be open',
  nodejs_eventloop_lag_seconds: "How late the main thread's event loop was, measured by the scrape",
  nodejs_heap_size_total_bytes: "Size of V8's heap",
  nodejs_heap_size_used_bytes: "Memory in use in V8's heap",
  nodejs_external_memory_bytes: "Memory outside V8's heap that its objects hold",
  nodejs_heap_space_size_total_bytes: "Size of the parts of V8's heap",
  nodejs_heap_space_size_used_bytes: "Memory in use in the parts of V8's heap",
  nodejs_heap_space_size_available_bytes: "Free memory in the parts of V8's heap",
  nodejs_version_info: 'Always 1; the version of the Node that runs the proxy',
  nodejs_gc_duration_seconds:
    'Time of garbage collections of the main thread, by kind: major, minor, incremental, weakcb',
};

/** prom-client always measures the event loop; with this interval it never wakes the process. */
const NEVER_MS = 2 ** 31 - 1;

/** `process_*` and `nodejs_*`. `takeLoopDelay`: since it was called last; `undefined` when nothing was measured. */
export function registerProcessMetrics(registry: Registry, takeLoopDelay: () => LoopDelayMs | undefined): void {
  const registers = [registry];
  new Gauge({
    name: 'process_open_fds',
    help: 'Open descriptors',
    registers,
    async collect() {
      this.set(await openDescriptors());
    },
  });
  const defaults = new Registry();
  collectDefaultMetrics({ register: defaults, eventLoopMonitoringPrecision: NEVER_MS });
  for (const [name, help] of Object.entries(DEFAULTS)) {
    const metric = defaults.getSingleMetric(name);
    // The one that comes from /proc/self/limits is missing where that cannot be read.
    if (metric) registry.registerMetric(Object.assign(metric, { help }));
  }
  // prom-client's own gauges of these names count the time between two looks as lateness. After a scrape without a
  // measurement, these keep their values.
  let delay: LoopDelayMs | undefined;
  for (const [index, statistic] of (Object.keys(LOOP_DELAY) as (keyof LoopDelayMs)[]).entries()) {
    new Gauge({
      name: `nodejs_eventloop_lag_${statistic}_seconds`,
      help: LOOP_DELAY[statistic],
      registers,
      collect() {
        // All gauges show one measurement: the first one takes it.
        if (index === 0) delay = takeLoopDelay() ?? delay;
        if (delay !== undefined) this.set(delay[statistic] / 1_000);
      },
    });
  }
}

export async function openDescriptors(): Promise<number> {
  const directory = '/proc/self/fd';
  // Since Linux 6.2 the size of the directory is the number of descriptors; before, it is 0 and they have to be listed.
  const { size } = await stat(directory);
  return size > 0 ? size : (await readdir(directory)).length;
}
