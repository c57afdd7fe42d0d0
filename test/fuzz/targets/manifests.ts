import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { assignClusterIPs } from '../../../src/manifests/cluster-ips.ts';
import { knownPieces, NO_FILE, nextFileState } from '../../../src/manifests/file-state.ts';
import { Mismatches } from '../../../src/manifests/mismatches.ts';
import { NamedObjects } from '../../../src/manifests/named-objects.ts';
import { type KnownPieces, type Reading, readManifest } from '../../../src/manifests/read-manifest.ts';
import type { Service } from '../../../src/model/service.ts';
import type { SourceEvent } from '../../../src/model/source.ts';
import { cidr } from '../../support/model.ts';
import { mutateYaml } from '../mutate.ts';
import { RulesWorld } from '../rules-world.ts';
import type { OpenTarget } from '../target.ts';

/* A manifest file → objects, what is said of them, and their rules. */

const RANGES = [cidr('10.96.0.0/16'), cidr('fd00:96::/112')];
const RULES = { clusterIpFamilies: ['IPv4', 'IPv6'], loopbackEndpoints: true } as const;

export const open: OpenTarget = () => ({
  seeds: ['examples/dns.yaml', 'examples/sticky.yaml', 'examples/web.yaml'].map((file) => readFileSync(file)),
  make: mutateYaml,

  async run(input) {
    const text = input.toString();
    const lines = text.split('\n').length;
    const first = nextFileState('a.yaml', NO_FILE, read(text, new Map()));
    for (const { message, fields } of first.reports) {
      assert.doesNotMatch(message, /\p{Cc}/u);
      const { line, err } = fields as { readonly line?: number; readonly err?: string };
      assert.ok(line === undefined || (line >= 1 && line <= lines), `line ${line} of ${lines}`);
      assert.ok((err?.length ?? 0) < 1_000, err);
    }
    const known = read(text, knownPieces(first.state));
    assert.deepEqual(known, read(text, new Map()), 'what is known is the same when it is parsed again');
    const second = nextFileState('a.yaml', first.state, known);
    assert.deepEqual(second.reports, [], 'nothing is said twice');

    const objects = new NamedObjects();
    objects.replace([], second.state.objects);
    const changes = objects.takeChanges(() => ['a.yaml']);
    const said = [...new Mismatches(objects).update([...changes.keys()].map((id) => [id, undefined]))];
    assert.equal(new Set(said.map(([id]) => id)).size, said.length, 'each is said once');
    const events = [...objects].flatMap(({ event }) => event ?? []);
    const services = events.flatMap(serviceOf);
    const assigned = assignClusterIPs(services, RANGES);
    const world = new RulesWorld();
    await world.apply(events.map((event) => withAddress(event, assigned.get(event.key))));
    await world.end();
  },
});

function read(text: string, known: KnownPieces): Reading {
  const reader = readManifest(text, known, RULES);
  for (;;) {
    const { done, value } = reader.next();
    if (done) return value;
  }
}

function serviceOf(event: SourceEvent): Service[] {
  return event.kind === 'Service' && event.value !== undefined ? [event.value] : [];
}

function withAddress(event: SourceEvent, clusterIPs: Service['clusterIPs'] | undefined): SourceEvent {
  if (event.kind !== 'Service' || event.value === undefined || clusterIPs === undefined) return event;
  return { ...event, value: { ...event.value, clusterIPs } };
}
