import { text } from 'node:stream/consumers';
import { claimsOf } from '../../../src/capture/claims.ts';
import { createExec } from '../../../src/kernel/iptables/exec.ts';
import { InstalledPrograms } from '../../../src/kernel/iptables/flavour.ts';
import { openNft } from '../../../src/kernel/nft/open-nft.ts';
import type { NodeFacts, Portal } from '../../../src/model/capture.ts';
import { systemClock as clock } from '../../../src/util/system-clock.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';

/* Captures for the portals on standard input by nft tables, in the network namespace in which it runs. */

interface Wanted {
  readonly portals: readonly Portal[];
  readonly node: NodeFacts;
  readonly connectionMark: number;
}

const { portals, node, connectionMark } = JSON.parse(await text(process.stdin)) as Wanted;
const exec = createExec({ clock });
const programs = new InstalledPrograms(exec);
const nft = await openNft({
  exec,
  programs,
  mark: connectionMark,
  isLocal: () => false,
  clock,
  log: new RecordingLog(),
});
await nft.probe(node.family);
const backEnd = nft.open({
  family: node.family,
  connectionMark,
  metrics: { changesQueued() {}, syncDone() {}, restoreFailed() {}, rulesInstalled() {} },
  ports: { retiredAfter: () => [], found() {} },
});
backEnd.begin(node);
for (const portal of portals) for (const claim of claimsOf(portal, node)) backEnd.replace(undefined, claim);
await backEnd.write({ verify: true });
