import { readdirSync } from 'node:fs';
import { endProcess } from '../../../../src/kernel/process.ts';
import { endpointAt } from '../../../compliance/data-plane/harness.ts';
import { engineRig } from '../worker/engine-rig.ts';

/*
 * The engine of a worker without its thread, so that its heap can be measured from within. Argument: the backend's
 * port. Sends its own port, and its state in answer to any message.
 */
const { engine, listen } = engineRig({ after: () => {} });
const { counters, localPort } = listen({ endpoints: [endpointAt('127.0.0.1', Number(process.argv[2]))] });

const run = (): void => {
  engine.turn(1);
  setImmediate(run);
};

process.on('message', () => {
  // Twice: the second frees what finalizers held.
  globalThis.gc?.();
  globalThis.gc?.();
  const { heapUsed, external } = process.memoryUsage();
  const descriptors = readdirSync('/proc/self/fd').length;
  process.send?.({ active: counters.read().active, descriptors, heapUsed, external });
});
process.on('disconnect', () => void endProcess(0));
process.send?.({ port: localPort });
run();
