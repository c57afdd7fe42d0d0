import { readdirSync } from 'node:fs';
import { createFastDataPlane } from '../../../../src/engine/fast/create.ts';
import { endProcess } from '../../../../src/kernel/process.ts';
import { systemClock } from '../../../../src/util/system-clock.ts';
import { endpointAt, OPTIONS, textObserver } from '../../../compliance/data-plane/harness.ts';
import { RecordingLog } from '../../../fakes/recording-log.ts';
import { listenSpec } from '../../../support/listen-spec.ts';
import { WORKER_SCRIPT } from '../../../support/worker-script.ts';

/*
 * A data plane with one Service port, in a process whose limits a test may set. Arguments: the backend's port, its
 * address if that is not 127.0.0.1, `kept` if it sees clients by their own address, the protocol if it is not TCP, and
 * after how many milliseconds of silence a UDP flow ends. Sends its own port, and its state in answer to any message.
 */

const [, , backendPort, address = '127.0.0.1', kept, protocol = 'TCP', silenceMs = '300'] = process.argv;
const events: string[] = [];
const log = new RecordingLog();
const plane = await createFastDataPlane({
  options: { ...OPTIONS, workers: 1, udpIdleTimeoutMs: Number(silenceMs), udpFirstReplyTimeoutMs: Number(silenceMs) },
  observer: textObserver(events),
  clock: systemClock,
  log,
  entry: WORKER_SCRIPT,
});
plane.knowClients({ families: ['IPv4'], nodeAddresses: [] });
const port = await plane.open(
  listenSpec({ name: 'a/b', protocol: protocol === 'UDP' ? 'UDP' : 'TCP', address, port: 0 }),
  {
    endpoints: [endpointAt(address, Number(backendPort))],
    affinity: { type: 'None' },
    ...(kept === 'kept' && { keptAddresses: { pods: 'all', others: 'all', clusterIPs: [] } }),
  },
);
/** `undefined` when there is not even one to look with. */
function openDescriptors(): number | undefined {
  try {
    return readdirSync('/proc/self/fd').length;
  } catch {
    return undefined;
  }
}

process.on('message', () => {
  const [stats] = plane.stats();
  const { user, system } = process.cpuUsage();
  process.send?.({
    events,
    log: log.lines,
    counters: stats?.counters,
    descriptors: openDescriptors(),
    cpuMs: (user + system) / 1000,
  });
});
process.on('disconnect', () => void endProcess(0));
process.send?.({ port });
