import assert from 'node:assert/strict';
import { test } from 'node:test';
import { COUNTERS } from '../../../src/contracts/data-plane.ts';
import { waitFor } from '../../netns/wait.ts';
import { connectTcp, refusingEndpoint, TcpBackend } from '../../support/tcp.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { type RigFactory, SETTLED_MS } from './harness.ts';

export function countingTests(makeRig: RigFactory): void {}
