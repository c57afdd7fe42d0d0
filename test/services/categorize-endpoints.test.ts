import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type NodeTopology, namedEndpoint } from '../../src/model/endpoint.ts';
import type { TrafficPolicy } from '../../src/model/service.ts';
import { type Candidate, categorizeEndpoints, type EndpointPolicy } from '../../src/services/categorize-endpoints.ts';
import { address } from '../support/model.ts';

/**
 * One endpoint in words: its number, then "ready", "unready" (serves no longer), "dying" (terminates, still serves),
 * "dead" (terminates, serves no longer) or "idle" (serves, yet is neither), "drained" when an operator took it out,
 * "here" when it is on the node n1, and hints as "zones=a,b", "nodes=n1".
 */
function candidate(words: string): Candidate {
  const [number = '', ...rest] = words.split(' ');
  const valuesOf = (name: string) =>
    rest
      .find((word) => word.startsWith(`${name}=`))
      ?.split('=')[1]
      ?.split(',');
  const [nodeHints, zoneHints] = [valuesOf('nodes'), valuesOf('zones')];
  const ip = address(`10.0.0.${number}`);
  return {
    endpoint: namedEndpoint(ip, 80),
    state: {
      address: ip,
      ready: rest.includes('ready'),
      serving: rest.includes('ready') || rest.includes('dying') || rest.includes('idle'),
      terminating: rest.includes('dying') || rest.includes('dead'),
      nodeName: rest.includes('here') ? 'n1' : 'n2',
      ...(nodeHints && { nodeHints }),
      ...(zoneHints && { zoneHints }),
    },
    weight: rest.includes('drained') ? 0 : 1,
  };
}

function numbers(candidates: readonly Candidate[] | undefined): string | undefined {
  return candidates?.map(({ endpoint }) => endpoint.address.slice('10.0.0.'.length)).join(' ');
}

function policy(internal: TrafficPolicy, external: TrafficPolicy, reach: 'inside' | 'everywhere'): EndpointPolicy {
  return { internal, external, isExternallyAccessible: reach === 'everywhere' };
}

const PLAIN = policy('Cluster', 'Cluster', 'inside');
const EXTERNAL_LOCAL = policy('Cluster', 'Local', 'everywhere');
const INTERNAL_LOCAL = policy('Local', 'Cluster', 'everywhere');
const INTERNAL_LOCAL_ONLY = policy('Local', 'Cluster', 'inside');
const BOTH_LOCAL = policy('Local', 'Local', 'everywhere');
const HERE: NodeTopology = { nodeName: 'n1', zone: 'a' };
const ABCA = ['3 ready zones=a', '4 ready zones=b', '5 ready zones=c', '6 ready zones=a'];
const HERE_ABCA = ['3 ready here zones=a', '4 ready here zones=b', '5 ready zones=c', '6 ready zones=a'];
const NODES = [
  '3 ready zones=a nodes=n1',
  '4 ready zones=b nodes=n2',
  '5 ready zones=c nodes=n3',
  '6 ready zones=a nodes=n4',
];

interface Case {
  readonly endpoints: readonly string[];
  readonly policy?: EndpointPolicy;
  readonly node?: NodeTopology;
  /** Left out where the Service has no use for them. */
  readonly cluster?: string;
  readonly local?: string;
  /** There is someone, and nobody for this node. */
  readonly onlyElsewhere?: boolean;
}

/** What upstream's `pkg/proxy/topology_test.go` TestCategorizeEndpoints asks for, and some more. */
const CASES: Readonly<Record<string, Readonly<Record<string, Case>>>> = {
  hints: {
    'lead to the own zone': { endpoints: ABCA, cluster: '3 6' },
    'say nothing to traffic that stays on the node, by the external policy': {
      endpoints: HERE_ABCA,
      policy: EXTERNAL_LOCAL,
      cluster: '3 6',
      local: '3 4',
    },
    'say nothing to traffic that stays on the node, by the internal policy': {
      endpoints: HERE_ABCA,
      policy: INTERNAL_LOCAL,
      cluster: '3 6',
      local: '3 4',
    },
    'count for nothing where the node has no zone': { endpoints: ABCA, node: { nodeName: 'n1' }, cluster: '3 4 5 6' },
    'count for nothing where the zone is empty': { endpoints: ABCA, node: { zone: '' }, cluster: '3 4 5 6' },
    'count for nothing in a zone that nobody is hinted for': {
      endpoints: ABCA,
      node: { zone: 'd' },
      cluster: '3 4 5 6',
    },
    'lead to no one who is not ready': {
      endpoints: ['3 ready zones=a', '4 ready zones=b', '5 ready zones=c', '6 unready zones=a'],
      cluster: '3',
    },
    'count for nothing where all of the zone are unready': {
      endpoints: ['3 unready zones=a', '4 ready zones=b', '5 ready zones=c', '6 unready zones=a'],
      cluster: '4 5',
    },
    'count for nothing where one who is ready has none': {
      endpoints: ['3 ready zones=a', '4 ready zones=b', '5 ready', '6 ready zones=a'],
      cluster: '3 4 5 6',
    },
    'are not missed in one who is not ready': {
      endpoints: ['3 ready zones=a', '4 ready zones=b', '5 unready', '6 dying'],
      cluster: '3',
    },
    'may name several zones': {
      endpoints: ['3 ready zones=x,b,a', '4 ready zones=b,a', '5 ready zones=b,d', '6 ready zones=a'],
      cluster: '3 4 6',
    },
    'may keep different ones on the node than in the zone': {
      endpoints: ['0 ready here zones=a', '1 ready here zones=b', '2 ready zones=a', '3 ready zones=b'],
      policy: BOTH_LOCAL,
      cluster: '0 2',
      local: '0 1',
    },
    'for nodes come before those for zones': { endpoints: NODES, cluster: '3' },
    'for nodes count for nothing where one has none': {
      endpoints: ['3 ready zones=a nodes=n1', '4 ready', '5 ready zones=c nodes=n3'],
      cluster: '3 4 5',
    },
    'for nodes give way to those for zones where one has none': {
      endpoints: ['3 ready zones=a nodes=n1', '4 ready zones=a', '5 ready zones=c nodes=n3'],
      cluster: '3 4',
    },
    'for other nodes give way to those for zones': {
      endpoints: NODES,
      node: { nodeName: 'n0', zone: 'a' },
      cluster: '3 6',
    },
    'for other nodes and zones count for nothing': {
      endpoints: NODES,
      node: { nodeName: 'n0', zone: 'z' },
      cluster: '3 4 5 6',
    },
    'for nodes count for nothing where the node is not known': { endpoints: NODES, node: {}, cluster: '3 4 5 6' },
  },
  'without hints': {
    'nobody is nobody': { endpoints: [], policy: BOTH_LOCAL, cluster: '', local: '' },
    'all who are ready serve': { endpoints: ['0 unready', '1 ready', '2 dying', '3 dead'], cluster: '1' },
    'unready ones never serve': { endpoints: ['0 unready', '1 unready'], cluster: '' },
    'those that terminate serve where nobody is ready': {
      endpoints: ['0 dying here', '1 dying', '2 dead'],
      cluster: '0 1',
    },
    'those that serve without being ready or terminating do not': {
      endpoints: ['0 dead', '1 unready here', '2 idle'],
      cluster: '',
    },
  },
  'drained endpoints': {
    'do not serve': { endpoints: ['1 ready drained', '2 ready'], cluster: '2' },
    'do not serve while they terminate either': { endpoints: ['1 dying drained', '2 dying'], cluster: '2' },
    'give way to those that terminate': { endpoints: ['1 ready drained', '2 dying'], cluster: '2' },
    'leave nobody where all are drained, wherever they are': {
      endpoints: ['1 ready drained', '2 dying drained here'],
      policy: INTERNAL_LOCAL_ONLY,
      local: '',
    },
    'here leave those elsewhere to be told of': {
      endpoints: ['1 ready here drained', '2 ready'],
      policy: INTERNAL_LOCAL_ONLY,
      local: '',
      onlyElsewhere: true,
    },
    'are not missed in the hints': {
      endpoints: ['1 ready drained', '2 ready zones=a', '3 ready zones=b'],
      cluster: '2',
    },
    'do not hold the others of their zone off': {
      endpoints: ['1 ready drained zones=a', '2 ready zones=b', '3 ready zones=c'],
      cluster: '2 3',
    },
  },
  'internal policy Local': {
    'with nobody': { endpoints: [], policy: INTERNAL_LOCAL_ONLY, local: '' },
    'with all elsewhere': {
      endpoints: ['0 ready', '1 ready'],
      policy: INTERNAL_LOCAL_ONLY,
      local: '',
      onlyElsewhere: true,
    },
    'with all here': { endpoints: ['0 ready here', '1 ready here'], policy: INTERNAL_LOCAL_ONLY, local: '0 1' },
    'with some here': { endpoints: ['0 ready here', '1 ready'], policy: INTERNAL_LOCAL_ONLY, local: '0' },
    'leaves others to external traffic': {
      endpoints: ['0 ready here', '1 ready'],
      policy: INTERNAL_LOCAL,
      cluster: '0 1',
      local: '0',
    },
    'finds nobody while the node is not known': {
      endpoints: ['0 ready here'],
      policy: INTERNAL_LOCAL_ONLY,
      node: {},
      local: '',
      onlyElsewhere: true,
    },
  },
  'external policy Local': {
    'leaves others to internal traffic': {
      endpoints: ['0 ready here', '1 ready'],
      policy: EXTERNAL_LOCAL,
      cluster: '0 1',
      local: '0',
    },
    'means nothing where there is no way in from outside': {
      endpoints: ['0 ready', '1 ready here'],
      policy: policy('Cluster', 'Local', 'inside'),
      cluster: '0 1',
    },
    'falls back to terminating ones here, although others are ready elsewhere': {
      endpoints: ['0 ready', '1 unready here', '2 dying here', '3 dying'],
      policy: EXTERNAL_LOCAL,
      cluster: '0',
      local: '2',
    },
  },
  'both policies Local': {
    'with some here, still leaves others to clients inside that use external addresses': {
      endpoints: ['0 ready here', '1 ready'],
      policy: BOTH_LOCAL,
      cluster: '0 1',
      local: '0',
    },
    'with all elsewhere': { endpoints: ['0 ready', '1 ready'], policy: BOTH_LOCAL, cluster: '0 1', local: '' },
    'with all elsewhere and terminating': {
      endpoints: ['0 dying', '1 dying'],
      policy: BOTH_LOCAL,
      cluster: '0 1',
      local: '',
    },
  },
};

for (const [what, cases] of Object.entries(CASES)) {
  describe(what, () => {
    for (const [name, { endpoints, policy: wanted = PLAIN, node = HERE, ...expected }] of Object.entries(cases)) {
      test(name, () => {
        const { cluster, local, hasAny } = categorizeEndpoints(endpoints.map(candidate), wanted, node);
        assert.equal(numbers(cluster), expected.cluster);
        assert.equal(numbers(local), expected.local);
        const hasReachable = (cluster?.length ?? 0) + (local?.length ?? 0) > 0;
        assert.equal(hasAny, hasReachable || expected.onlyElsewhere === true);
      });
    }
  });
}

test('a terminating endpoint of a Service that publishes unready addresses comes as ready and serves', () => {
  const [state] = [{ ...candidate('1 ready').state, serving: false, terminating: true }];
  const one = { ...candidate('1'), state };
  assert.equal(numbers(categorizeEndpoints([one, candidate('2 dying')], PLAIN, HERE).cluster), '1');
});

test('an endpoint that names no node is on no node, be it that the own one is not known', () => {
  const { endpoint, state } = candidate('1 ready');
  const { nodeName: _, ...nowhere } = state;
  for (const node of [HERE, {}]) {
    assert.equal(numbers(categorizeEndpoints([{ endpoint, state: nowhere, weight: 1 }], BOTH_LOCAL, node).local), '');
  }
});
