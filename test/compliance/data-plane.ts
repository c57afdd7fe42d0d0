import '../support/private-netns.ts';
import { before, describe } from 'node:test';
import { clientAddressTests } from './data-plane/client-address.ts';
import { congestionTests } from './data-plane/congestion.ts';
import { connectionLogTests } from './data-plane/connection-log.ts';
import { copyingTests } from './data-plane/copying.ts';
import { countingTests } from './data-plane/counting.ts';
import { drainingTests } from './data-plane/draining.ts';
import { ejectingTests } from './data-plane/ejecting.ts';
import { type EngineFactory, rigFactory } from './data-plane/harness.ts';
import { hedgingTests } from './data-plane/hedging.ts';
import { inspectingTests } from './data-plane/inspecting.ts';
import { listeningTests } from './data-plane/listening.ts';
import { buildNetwork } from './data-plane/network.ts';
import { pathTests } from './data-plane/paths.ts';
import { pickingTests } from './data-plane/picking.ts';
import { proxyProtocolTests } from './data-plane/proxy-protocol.ts';
import { retryTests } from './data-plane/retry.ts';
import { schedulingTests } from './data-plane/scheduling.ts';
import { sharingTests } from './data-plane/sharing.ts';
import { tcpEndTests } from './data-plane/tcp-ends.ts';
import { udpTests } from './data-plane/udp.ts';
import { udpDrainingTests } from './data-plane/udp-draining.ts';
import { udpLifetimeTests } from './data-plane/udp-lifetime.ts';
import { udpReplayTests } from './data-plane/udp-replay.ts';
import { udpSharingTests } from './data-plane/udp-sharing.ts';
import { waitingTests } from './data-plane/waiting.ts';

export type { EngineFactory } from './data-plane/harness.ts';

/**
 * What every engine must do, seen through the DataPlane interface and real sockets alone. Time is real, for an engine
 * may run in threads of its own that no test clock reaches: the options are short and the bounds generous.
 *
 * The test file that calls this runs in a network namespace of its own.
 */
export function dataPlaneCompliance(label: string, factory: EngineFactory): void {
  // A hang must fail. This bounds all of them together, on a machine that does much else.
  describe(label, { timeout: 1_800_000 }, () => {
    before(buildNetwork);
    const rig = rigFactory(factory);
    describe('listening', () => listeningTests(rig));
    describe('picking', () => pickingTests(rig));
    describe('schedulers', () => schedulingTests(rig));
    describe('retry', () => retryTests(rig));
    describe('the PROXY protocol', () => proxyProtocolTests(rig));
    describe('ejecting', () => ejectingTests(rig));
    describe('hedging', () => hedgingTests(rig));
    describe('copying', () => copyingTests(rig));
    describe('the end of a connection', () => tcpEndTests(rig));
    describe('the waiting room', () => waitingTests(rig));
    describe('bad paths', () => pathTests(rig));
    describe('endpoints that go', () => drainingTests(rig));
    describe('shares', () => sharingTests(rig));
    describe('the congestion control', () => congestionTests(rig));
    describe('UDP', () => udpTests(rig));
    describe('shares of UDP', () => udpSharingTests(rig));
    describe('the life of a UDP flow', () => udpLifetimeTests(rig));
    describe('UDP datagrams that nobody has answered', () => udpReplayTests(rig));
    describe('UDP flows of endpoints that go', () => udpDrainingTests(rig));
    describe("the client's address", () => clientAddressTests(rig));
    describe('counters', () => countingTests(rig));
    describe('the connection log', () => connectionLogTests(rig));
    describe('what operators ask', () => inspectingTests(rig));
  });
}
