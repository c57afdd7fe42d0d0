import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EXPLAIN } from '../../src/cli/explain.ts';
import { partsOf } from '../../src/model/service.ts';
import type { Explanation, NodeView, Question, RuleView, ServiceFilter, ServiceView } from '../../src/model/view.ts';
import { FAKE_NOW, FakeView, LOST_SERVERS, SEVERAL_SERVERS } from '../fakes/fake-view.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { address } from '../support/model.ts';
import { controlOf } from './control-of.ts';
import { RecordingTerminal } from './recording-terminal.ts';
import { runCommand } from './run-command.ts';

const NOTHING: Explanation = { summary: 'no Service is there', served: false, rules: [], candidates: [] };
const ENDPOINT = { address: address('10.244.1.7'), port: 8080 };

function service(name: ServiceView['name'], family: ServiceView['family'], ip: string, port = 80): ServiceView {
  const protocol = name.endsWith('dns') ? 'UDP' : 'TCP';
  return {
    name,
    ...partsOf(name),
    family,
    protocol,
    port,
    clusterIPs: [address(ip)],
    externalIPs: [],
    loadBalancerIPs: [],
  } as unknown as ServiceView;
}

/** Services in both families, one of them with two ports. */
class View extends FakeView {
  readonly asked: Question[] = [];
  readonly answer: Explanation;

  constructor(answer: Explanation) {
    super();
    this.answer = answer;
  }

  override *services({ namespace, service: wanted }: ServiceFilter = {}): Iterable<ServiceView> {
    for (const each of [
      service('default/web:http', 'IPv4', '10.96.0.1'),
      service('default/web:http', 'IPv6', 'fd00:96::1'),
      service('default/both:dns', 'IPv4', '10.96.0.2', 53),
      service('default/both:http', 'IPv4', '10.96.0.2'),
      service('default/udp', 'IPv6', 'fd00:96::3'),
    ]) {
      if (wanted === undefined || each.name.split(':')[0] === `${namespace}/${wanted}`) yield each;
    }
  }

  override async explain(question: Question): Promise<Explanation> {
    this.asked.push(question);
    return this.answer;
  }
}

/** Without an API server that could be named. */
const FILES: Partial<NodeView> = { api: { connected: true, staleForMs: 0, servers: [] } };

async function run(argv: string, answer = NOTHING, node = FILES, wallNow = 0) {
  const terminal = new RecordingTerminal();
  const view = new View(answer);
  view.nodeChanges = node;
  const tools = {
    clock: Object.assign(new ManualClock(), { wallNow: () => wallNow }),
    connect: () => controlOf(view),
    onInterrupt: () => () => undefined,
  };
  const code = await runCommand(EXPLAIN, argv.split(' '), terminal, tools);
  return { code, asked: view.asked[0], printed: terminal.printed, complained: terminal.complained };
}

test('explain warns when the proxy’s state may be old', async () => {
  const away = await run('10.96.0.1:80', NOTHING, { api: { connected: false, staleForMs: 61_000, servers: [] } });
  assert.match(away.complained, /^Warning: the API server has not answered for 1m1s/);
  assert.equal((await run('10.96.0.1:80')).complained, '');
});

test('explain names several API servers, and which one is used', async () => {
  const api = { connected: true, staleForMs: 0, servers: SEVERAL_SERVERS };
  const { printed } = await run('10.96.0.1:80', NOTHING, { api });
  assert.ok(
    printed.endsWith(`
API servers
  192.0.2.1:6443: failing for 2m: connect ECONNREFUSED
  192.0.2.2:6443: in use for 1m
  192.0.2.3:6443: in reserve
`),
    printed,
  );
});

test('explain names a single API server, too, and what is wrong with each while all are lost', async () => {
  const ending = async (api: NonNullable<NodeView['api']>) => {
    const { printed } = await run('10.96.0.1:80', NOTHING, { api });
    return printed.slice(printed.lastIndexOf('\nAPI server') + 1);
  };
  const one = [{ server: '192.0.2.1:6443', usedSince: FAKE_NOW - 60_000 }];
  const lost = { connected: false, staleForMs: 61_000 };
  assert.equal(
    await ending({ connected: true, staleForMs: 0, servers: one }),
    'API server\n  192.0.2.1:6443: in use for 1m\n',
  );
  assert.equal(
    await ending({ ...lost, servers: one, err: '192.0.2.1:6443: connect ECONNREFUSED' }),
    'API server\n  192.0.2.1:6443: connect ECONNREFUSED\n',
  );
  assert.equal(
    await ending({ ...lost, servers: [{ server: '192.0.2.1:6443' }] }),
    'API server\n  192.0.2.1:6443: no answer yet\n',
  );
  assert.equal(
    await ending({ ...lost, servers: LOST_SERVERS }),
    `API servers
  192.0.2.1:6443: failing for 2m: connect ECONNREFUSED
  192.0.2.2:6443: used last, failing for 30s: no answer to a probe within 10 s
  192.0.2.3:6443: failing for 30s: no answer to a probe within 10 s
`,
  );
});

test('explain asks for an address, or for a Service by its name', async () => {
  for (const [argv, to, from] of [
    ['10.96.0.1:80', '10.96.0.1 80 TCP', undefined],
    ['10.96.0.1:80/tcp', '10.96.0.1 80 TCP', undefined],
    ['10.96.0.2:53/udp', '10.96.0.2 53 UDP', undefined],
    ['10.96.0.2:53/UDP --from 10.244.1.9', '10.96.0.2 53 UDP', '10.244.1.9'],
    ['[fd00:96:0::1]:80 --from fd00::9', 'fd00:96::1 80 TCP', 'fd00::9'],
    ['0.0.0.0:30080', '127.0.0.1 30080 TCP', undefined],
    ['[::]:30053/udp', '::1 30053 UDP', undefined],
    ['default/web:http', '10.96.0.1 80 TCP', undefined],
    ['default/web:80', '10.96.0.1 80 TCP', undefined],
    ['default/web', '10.96.0.1 80 TCP', undefined],
    ['default/web --from fd00::9', 'fd00:96::1 80 TCP', 'fd00::9'],
    ['default/both:dns', '10.96.0.2 53 UDP', undefined],
    ['default/udp', 'fd00:96::3 80 TCP', undefined],
  ] as const) {
    const { asked } = await run(argv);
    assert.equal(`${asked?.address} ${asked?.port} ${asked?.protocol}`, to, argv);
    assert.equal(asked?.client, from, argv);
  }

  for (const [argv, sentence] of [
    ['web', /^"web": write an address such as .*, or a Service such as default\/web/],
    ['10.96.0.1', /write an address such as/],
    ['10.96.0.1:80/sctp', /write an address such as/],
    ['10.96.0.300:80', /^"10\.96\.0\.300:80": not an address with a port/],
    ['0.0.0.0:30080 --from 198.51.100.1', /^0\.0\.0\.0 is every address of this node: name the one that 198/],
    ['10.96.0.1:80 --from here', /^--from "here": must be an IP address$/],
    ['10.96.0.1:80 --from fd00::9', /^--from fd00::9: not of the address family of 10\.96\.0\.1$/],
    ['default/none', /^this node serves no Service "default\/none"; see/],
    ['default/wbe', /^this node serves no Service "default\/wbe"; did you mean default\/web\?$/],
    ['default/web:https', /^this node serves no Service "default\/web:https"; did you mean default\/web:http\?$/],
    ['default/both --from fd00::9', /^this node does not serve "default\/both" over IPv6/],
    ['default/both', /^"default\/both" has several ports; name one of them: default\/both:dns, default\/both:http$/],
  ] as const) {
    await assert.rejects(run(argv), (error: Error) => sentence.test(error.message), argv);
  }
});

test('the exit code says whether an endpoint would get the connection', async () => {
  assert.equal((await run('10.96.0.1:80')).code, 1);
  assert.equal((await run('10.96.0.1:80', { ...NOTHING, served: true })).code, 0);
});

test('JSON has no control characters and the same content', async () => {
  const said = 'x\u009b2J\u202e\u007f\u001b[31m\n\u{e0001}"';
  const answer = { ...NOTHING, summary: said, rules: [{ table: 'nat', chain: 'X', rule: said, line: said }] };
  const { printed } = await run('10.96.0.1:80 -o json', answer);
  assert.doesNotMatch(printed, /[\p{Cf}\p{Zl}\p{Zp}]|(?!\n)\p{Cc}/u);
  assert.deepEqual(JSON.parse(printed), answer);
});

function ruleOf(table: string, chain: string, rule: string): RuleView {
  return { table, chain, rule, line: `-t ${table} -A ${chain} ${rule}` };
}

const FULL: Explanation = {
  summary: 'default/web:http takes it; the next connection goes to 10.244.1.7:8080',
  served: true,
  rules: [
    ruleOf('nat', 'OUTPUT', '-m comment --comment "handle ClusterIPs" -j KUBE-PORTALS-HOST'),
    ruleOf('nat', 'KUBE-PORTALS-HOST', '-d 10.96.0.1/32 -p tcp -j DNAT --to-destination 192.168.50.10:40001'),
  ],
  service: {
    ...service('default/web:http', 'IPv4', '10.96.0.1'),
    externalIPs: [],
    loadBalancerIPs: [address('203.0.113.1')],
    nodePort: 30_080,
    scheduler: 'wlc',
    slowStartMs: 30_000,
    affinity: { type: 'ClientIP', timeoutSeconds: 10_800 },
    state: 'degraded',
    reason: 'drained',
  },
  listener: { set: 'local', localPort: 40_001, worker: 1 } as unknown as NonNullable<Explanation['listener']>,
  candidates: [
    { endpoint: ENDPOINT, nodeName: 'node-1', zone: 'a', chosen: true, weight: 3, active: 3 },
    {
      endpoint: { address: address('10.244.1.8'), port: 8080 },
      chosen: true,
      weight: 1,
      connectTime: { p50: 64, p99: 4_096, count: 200 },
    },
    {
      endpoint: { address: address('10.244.1.123'), port: 8080 },
      chosen: false,
      weight: 1,
      reason: 'on another node, and the policy is Local',
      lastError: { at: 10_000, err: 'connection refused' },
    },
  ],
  nextPick: ENDPOINT,
};

test('the text shows all of the answer', async () => {
  const { printed } = await run('10.96.0.1:80', FULL, FILES, 82_000);
  assert.equal(
    printed,
    `default/web:http takes it; the next connection goes to 10.244.1.7:8080.

Rules that match, in order
  -t nat -A OUTPUT -m comment --comment "handle ClusterIPs" -j KUBE-PORTALS-HOST
  -t nat -A KUBE-PORTALS-HOST -d 10.96.0.1/32 -p tcp -j DNAT --to-destination 192.168.50.10:40001

Service
  default/web:http  10.96.0.1:80/TCP, 203.0.113.1:80/TCP, NodePort 30080, scheduler wlc, slow start 30s, affinity of 10800 s, state degraded: drained

Listener
  local port 40001, worker 1, endpoints of this node only

Endpoints (3)
  10.244.1.7:8080  next, weight 3, 3 open, node node-1, zone a
  10.244.1.8:8080  gets new connections, connects in ≤64ms (p99 >2048ms)
  10.244.1.123:8080  left out: on another node, and the policy is Local, last failure 1m12s ago: connection refused
`,
  );
  assert.equal((await run('10.96.0.1:80')).printed, 'No Service is there.\n');
  const rule = '-m comment --comment "ein Kommentar – 評論" -j RETURN';
  const { printed: copied } = await run('10.96.0.1:80', { ...NOTHING, rules: [ruleOf('filter', 'X', rule)] });
  assert.ok(copied.endsWith(`\n  -t filter -A X ${rule}\n`), copied);
});

test('the text says how the endpoint learns of the client', async () => {
  const { printed } = await run('10.96.0.1:80', {
    ...NOTHING,
    summary: 'default/web:http takes it',
    endpointSees: { address: 'node', reason: 'externalTrafficPolicy is Cluster' },
    proxyProtocol: 'v2',
  });
  assert.equal(
    printed,
    `default/web:http takes it.
The endpoint sees this node's address, because externalTrafficPolicy is Cluster.
A PROXY protocol header (v2) tells it who the client is.
`,
  );
});

test('explain says what the capture does not look at', async () => {
  const { printed } = await run('10.96.0.1:80', { ...NOTHING, caveat: 'Some is not seen.' });
  assert.equal(printed, 'No Service is there.\nSome is not seen.\n');
});

test("other programs' rules cannot do anything to the terminal", async () => {
  const rules = [ruleOf('nat', 'X\u001b[2J', '-m comment --comment "\u001b]0;x\u0007\n" -j ACCEPT')];
  const service = { ...FULL.service, name: 'a/\u001b[2J' } as NonNullable<Explanation['service']>;
  const { printed } = await run('10.96.0.1:80', { ...NOTHING, summary: 'a rule \u001b[31m', rules, service });
  assert.ok(![...printed].some((char) => char !== '\n' && (char < ' ' || char === '\u007f')), JSON.stringify(printed));
  assert.equal(printed.split('\n').length, 8);
});
