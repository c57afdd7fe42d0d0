import { readdir, stat } from 'node:fs/promises';
import { collectDefaultMetrics, Gauge, type Registry } from 'prom-client';

/**
 * Those of prom-client's defaults that list every open handle or descriptor: with ten thousand listeners, several
 * milliseconds of the event loop in each scrape.
 */
const LISTING = [
  'nodejs_active_handles',
  'nodejs_active_handles_total',
  'nodejs_active_requests',
  'nodejs_active_requests_total',
  'nodejs_active_resources',
  'nodejs_active_resources_total',
  'process_open_fds',
];

const DESCRIPTORS = '/proc/self/fd';

/** `process_*` and `nodejs_*`: prom-client's, as far as they cost nothing with many descriptors. */
export function registerProcessMetrics(registry: Registry): void {
  collectDefaultMetrics({ register: registry });
  for (const name of LISTING) registry.removeSingleMetric(name);
  new Gauge({
    name: 'process_open_fds',
    help: 'Number of open file descriptors.',
    registers: [registry],
    async collect() {
      this.set(await openDescriptors());
    },
  });
}

async function openDescriptors(): Promise<number> {
  // Since Linux 6.2 the size of the directory is the number of descriptors; before, it is 0 and they have to be listed.
  const { size } = await stat(DESCRIPTORS);
  return size > 0 ? size : (await readdir(DESCRIPTORS)).length;
}
