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
 * Those of prom-client's defaults that are served, in words that say what they are here. Not those that list every open
 * handle or descriptor: with ten thousand listeners, several milliseconds of the event loop in each scrape.
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

const DESCRIPTORS = '/proc/self/fd';

/** prom-client's measurement of the event loop cannot be left out, but wakes nobody up. */
const NEVER_MS = 2 ** 31 - 1;

/**
 * `process_*` and `nodejs_*`: prom-client's, as far as they cost nothing with many descriptors. `takeLoopDelay`: since
 * it was called last; `undefined` when nothing was measured.
 */
export function registerProcessMetrics(registry: Registry, takeLoopDelay: () => LoopDelayMs | undefined): void {
  new Gauge({
    name: 'process_open_fds',
    help: 'Open descriptors',
    registers: [registry],
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
  registerLoopDelay(registry, takeLoopDelay);
}

/**
 * Under prom-client's names. Its own count the time between two looks as lateness, and a scrape right after another one
 * gets what is no time at all: here, the values of that one.
 */
function registerLoopDelay(registry: Registry, takeLoopDelay: () => LoopDelayMs | undefined): void {
  const statistics = Object.keys(LOOP_DELAY) as (keyof LoopDelayMs)[];
  const gauges = statistics.map((statistic, index) => {
    const gauge = new Gauge({
      name: `nodejs_eventloop_lag_${statistic}_seconds`,
      help: LOOP_DELAY[statistic],
      registers: [registry],
      // The first that is asked sets all of them, so that they are of one measurement.
      ...(index === 0 && { collect }),
    });
    return { statistic, gauge };
  });
  function collect() {
    const delay = takeLoopDelay();
    if (delay === undefined) return;
    for (const { statistic, gauge } of gauges) gauge.set(delay[statistic] / 1_000);
  }
}

export async function openDescriptors(): Promise<number> {
  // Since Linux 6.2 the size of the directory is the number of descriptors; before, it is 0 and they have to be listed.
  const { size } = await stat(DESCRIPTORS);
  return size > 0 ? size : (await readdir(DESCRIPTORS)).length;
}
