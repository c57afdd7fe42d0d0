import { openEndpointSocket } from '../../src/engine/node/endpoint-socket.ts';
import { createNodeDataPlane, loadKeeper, loadKernelSockets } from '../../src/engine/node/node-data-plane.ts';
import { systemClock } from '../../src/util/system-clock.ts';
import { CONNECTION_MARK } from './data-plane/harness.ts';
import { dataPlaneCompliance } from './data-plane.ts';

const kernel = await loadKernelSockets();

dataPlaneCompliance('the node engine', async ({ options, observer, descriptorLimit }) =>
  createNodeDataPlane({
    ...{
      options,
      observer,
      descriptorLimit,
      clock: systemClock,
      random: Math.random,
      kernel,
      keeper: await loadKeeper({ ...options, mark: CONNECTION_MARK }),
    },
    // As in the program; test/engine/node/ has the sockets that Node makes.
    openSocket: (address, protocol) => openEndpointSocket(address, protocol, { ...options, mark: CONNECTION_MARK }),
  }),
);
