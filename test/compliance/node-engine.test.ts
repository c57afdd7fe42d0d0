import { createNodeDataPlane } from '../../src/dataplane/node/node-data-plane.ts';
import { systemClock } from '../../src/host/system-clock.ts';
import { dataPlaneCompliance } from './data-plane.ts';

dataPlaneCompliance('the node engine', ({ options, observer }) =>
  createNodeDataPlane({ options, observer, clock: systemClock, random: Math.random }),
);
