import { createNodeDataPlane, loadKernelSockets } from '../../src/dataplane/node/node-data-plane.ts';
import { systemClock } from '../../src/host/system-clock.ts';
import { openMarkedSocket } from '../../src/sys/marked-socket.ts';
import { CONNECTION_MARK } from './data-plane/harness.ts';
import { dataPlaneCompliance } from './data-plane.ts';

const kernel = await loadKernelSockets();

dataPlaneCompliance('the node engine', ({ options, observer }) =>
  createNodeDataPlane({
    ...{ options, observer, clock: systemClock, random: Math.random, kernel },
    // As in the program; test/dataplane/node/ has the sockets that Node makes.
    openSocket: (address, protocol) => openMarkedSocket(address, protocol, CONNECTION_MARK),
  }),
);
