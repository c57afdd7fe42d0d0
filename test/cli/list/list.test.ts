import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { LIST, PATIENCE_MS } from '../../../src/cli/list/list.ts';
import type { Address } from '../../../src/model/address.ts';
import type { Endpoint } from '../../../src/model/endpoint.ts';
import type { ConnectionView, NodeView, ServiceFilter, ServiceView } from '../../../src/model/view.ts';
import { READ_TIMEOUT_MS } from '../../../src/operate/control/protocol.ts';
import { FakeView } from '../../fakes/fake-view.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { all } from '../../operate/control/served.ts';
import { settle, until } from '../../support/until.ts';
import { controlOf } from '../control-of.ts';
import { RecordingTerminal } from '../recording-terminal.ts';
import { runCommand } from '../run-command.ts';

class Run {
  readonly terminal = new RecordingTerminal();
  readonly clock = new ManualClock();
  readonly asked: string[] = [];

  async list(argv: string, view = new FakeView(), size = 2): Promise<number> {
    const connect = (path: string) => {
      this.asked.push(path);
      return controlOf(view, size);
    };
    const tools = { clock: this.clock, connect, onInterrupt: () => () => undefined };
    return await runCommand(LIST, argv.split(' ').filter(Boolean), this.terminal, tools);
  }

  /** The names of the Services that were listed. */
  get names(): string[] {
    return [...new Set(this.terminal.printed.match(/[a-z-]+\/[a-z]+(:[a-z]+)?$/gm))];
  }
}

async function listed(argv: string): Promise<string[]> {
  const run = new Run();
  assert.equal(await run.list(argv), 0);
  return run.names;
}

describe('list', () => {
  test('shows the version and the node of the program at the given control socket', async () => {
    const run = new Run();
    assert.equal(await run.list('-n --control-socket /somewhere/control.sock'), 0);
    assert.deepEqual(run.asked, ['/somewhere/control.sock']);
    assert.equal(run.terminal.complained, '');
    assert.match(
      run.terminal.printed,
      /^Kube userspace proxy version 0\.1\.0 \(node=node-1\)\nProt LocalAddress:Port /,
    );
    assert.deepEqual(run.names, ['default/web:http', 'kube-system/dns:dns', 'shop/empty']);
  });

  const caveats: readonly (readonly [what: string, changes: Partial<NodeView>, warning: RegExp])[] = [
    [
      'the API server is away',
      { api: { connected: false, staleForMs: 312_000, servers: [] } },
      /^Warning: the API server has not answered for 5m12s, so changes may be missing\.\n$/,
    ],
    [
      'rules cannot be synced',
      {
        families: [
          { family: 'IPv6', servicePorts: 1, pending: 1, lastSync: { at: 1, durationMs: 1, err: 'no\nroom' } },
        ],
      },
      /^Warning: the rules of IPv6 cannot be synced: no\\u000aroom\.\n$/,
    ],
    [
      'there are none yet',
      { families: [{ family: 'IPv4', servicePorts: 0, pending: 0 }] },
      /^Warning: the rules of IPv4 have not been synced since the start\.\n$/,
    ],
  ];
  for (const [what, changes, warning] of caveats) {
    test(`says beside the list that ${what}`, async () => {
      const view = new FakeView();
      view.nodeChanges = changes;
      const run = new Run();
      assert.equal(await run.list('-o json', view), 0);
      assert.match(run.terminal.complained, warning);
      assert.equal(JSON.parse(run.terminal.printed).services.length, 3);
    });
  }

  test('says beside the problems of Services what is wrong with files, and not beside other lists', async () => {
    const view = new FakeView();
    const [found, place] = ['A manifest file cannot be used\n', 'web.yaml:3'];
    view.nodeChanges = { findings: [{ level: 'warn', found, place, advice: 'correct it' }] };
    const run = new Run();
    assert.equal(await run.list('--problems', view), 0);
    assert.equal(run.terminal.complained, 'Problem: A manifest file cannot be used\\u000a (web.yaml:3); correct it.\n');
    const other = new Run();
    assert.equal(await other.list('', view), 0);
    assert.equal(other.terminal.complained, '');
  });

  const selections: readonly (readonly [argv: string, names: readonly string[]])[] = [
    ['default', ['default/web:http']],
    ['--namespace kube-system', ['kube-system/dns:dns']],
    ['-N shop', ['shop/empty']],
    ['--service web', ['default/web:http']],
    ['--problems', ['shop/empty']],
    ['default --problems', []],
    ['shop/empty', ['shop/empty']],
    ['default/web:http', ['default/web:http']],
    ['default/web:80', ['default/web:http']],
  ];
  for (const [argv, names] of selections) {
    test(`can be narrowed: ${argv}`, async () => assert.deepEqual(await listed(argv), names));
  }

  for (const [argv, instead] of [
    ['nobody', 'see kube-userspace-proxy list'],
    ['web', 'did you mean default/web?'],
    ['defualt', 'did you mean default?'],
    ['defualt/web', 'did you mean default/web?'],
    ['default/wbe', 'did you mean default/web?'],
    ['default/other', 'see kube-userspace-proxy list'],
    ['default/web:dns', 'did you mean default/web:http?'],
    ['--service we', 'see kube-userspace-proxy list'],
    ['default/web:8', 'did you mean default/web:http?'],
  ]) {
    test(`says what is there instead when nothing matches: ${argv}`, async () => {
      const run = new Run();
      assert.equal(await run.list(argv as string), 1);
      const name = JSON.stringify(argv?.split(' ').at(-1));
      assert.equal(run.terminal.complained, `This node serves no Service ${name}; ${instead}\n`);
      assert.equal(run.terminal.printed, '');
    });
  }

  test('is no failure when there are no Services at all', async () => {
    assert.equal(await new Run().list('', new FakeView({ services: 0 })), 0);
  });

  test('requests endpoints only when it shows them', async () => {
    const filters: (ServiceFilter | undefined)[] = [];
    const view = new FakeView();
    const services = view.services.bind(view);
    view.services = (filter) => {
      filters.push(filter);
      return services(filter);
    };
    for (const argv of ['', '--rate default', '--rate -o json']) await new Run().list(argv, view);
    assert.deepEqual(filters, [{}, { namespace: 'default', summary: true }, {}]);
  });

  const mistakes: readonly (readonly [argv: string, complaint: RegExp])[] = [
    ['--stats --rate', /--stats and --rate exclude each other/],
    ['--rate -c', /--rate and --connection exclude each other/],
    ['default --namespace shop', /"default" beside --namespace or --service/],
    ['10.96.0.1:53', /must be NAMESPACE, NAMESPACE\/SERVICE or .* use explain/],
    ['a/b/c', /must be NAMESPACE/],
    ['--sort name', /sort -> watch/],
    ['-o yaml', /must be one of "table", "wide", "json"/],
    ['--service=', /^UsageError: --service is empty; see --help$/],
    ['-N x --service=', /^UsageError: --service is empty/],
  ];
  for (const [argv, complaint] of mistakes) {
    test(`refuses ${argv}`, async () => await assert.rejects(new Run().list(argv), complaint));
  }

  test('prints each piece before it requests the next', async () => {
    const view = new FakeView({ services: 1_000 });
    const run = new Run();
    const made: number[] = [];
    const out = run.terminal.out;
    Object.assign(run.terminal, {
      out: (text: string) => {
        made.push(view.made);
        out(text);
      },
    });
    await run.list('', view, 10);
    assert.equal(made[0], 10);
    assert.equal(made[49], 500);
  });
});

/** Text of a hostile server. */
const STRANGE = '1\u001b]0;x\u0007\u202e';

test('the tables have no control characters, whatever the answer', async () => {
  const view = new FakeView();
  view.nodeChanges = { version: STRANGE, nodeName: STRANGE };
  const [service] = view.services() as Iterable<ServiceView>;
  const [[connection]] = (await all(view.connections())) as [[ConnectionView]];
  view.services = function* () {
    yield { ...(service as ServiceView), name: `a/${STRANGE}`, clusterIPs: [STRANGE as Address] };
  };
  view.connections = async function* () {
    yield [{ ...connection, name: `a/${STRANGE}` }];
  };
  for (const argv of ['', '-o wide', '--stats', '--rate', '-c']) {
    const run = new Run();
    await run.list(argv, view);
    assert.match(run.terminal.printed, /a\/1\\u001b/, argv);
    assert.doesNotMatch(run.terminal.printed, /(?!\n)[\p{Cc}\p{Cf}]/u, argv);
  }
});

describe('a list that is not read', () => {
  /** A list that waits for its reader for the first time. */
  async function stalled() {
    const view = new FakeView({ services: 100 });
    const run = new Run();
    const reader = Promise.withResolvers<void>();
    Object.assign(run.terminal, { flush: () => reader.promise });
    const exit = run.list('', view, 10);
    await until('it waits', () => run.clock.pendingTimers === 1);
    await settle();
    return { view, run, reader, exit };
  }

  test('is made only as fast as it is read', async () => {
    const { view, run, reader, exit } = await stalled();
    assert.equal(view.made, 10);
    run.clock.advance(PATIENCE_MS - 1);
    await settle();
    assert.equal(view.made, 10);
    reader.resolve();
    assert.equal(await exit, 0);
    assert.equal(view.made, 100);
    assert.equal(run.clock.pendingTimers, 0);
  });

  test('is read from the proxy to the end before the proxy’s deadline', async () => {
    assert.ok(PATIENCE_MS < READ_TIMEOUT_MS);
    const { view, run, exit } = await stalled();
    run.clock.advance(PATIENCE_MS);
    assert.equal(await exit, 0);
    assert.equal(view.made, 100);
  });

  test('has one deadline for all pieces together', async () => {
    const view = new FakeView({ services: 100 });
    const run = new Run();
    let waits = 0;
    const flush = async () => {
      waits++;
      run.clock.advance(PATIENCE_MS / 2);
    };
    Object.assign(run.terminal, { flush });
    assert.equal(await run.list('', view, 10), 0);
    assert.deepEqual([waits, view.made], [2, 100]);
  });
});

describe('list -c', () => {
  test('has the layout of ipvsadm', async () => {
    const run = new Run();
    assert.equal(await run.list('-c -n'), 0);
    assert.deepEqual(run.terminal.printed.split('\n').slice(0, 4), [
      'Kube userspace proxy version 0.1.0 (node=node-1)',
      'pro expire state       source                virtual               destination           service',
      'TCP -      ESTABLISHED 10.244.1.20:40000     10.96.0.0:80          10.244.0.1:8080       default/web:http',
      'TCP -      ESTABLISHED 10.244.1.20:40001     10.96.0.0:80          10.244.0.1:8080       default/web:http',
    ]);
  });

  test('aligns columns also with long addresses', async () => {
    const view = new FakeView();
    const [long, short] = ['2001:db8:85a3:1234:5678:8a2e:370:7334', 'fd00::1'] as [Address, Address];
    view.connections = async function* () {
      const rest = { protocol: 'TCP', state: 'established' } as const;
      for (const address of [long, short]) {
        const [client, virtual, endpoint] = [1, 2, 3].map((port) => ({ address, port })) as [
          Endpoint,
          Endpoint,
          Endpoint,
        ];
        const connection: ConnectionView = { ...rest, name: 'a/b', client, virtual, endpoint };
        yield [connection];
      }
    };
    const run = new Run();
    assert.equal(await run.list('-c', view), 0);
    const columns = run.terminal.printed
      .split('\n')
      .slice(2, 4)
      .map((line) => [...line.matchAll(/\[|a\/b/g)].map(({ index }) => index));
    assert.deepEqual(columns[0], [23, 65, 107, 149]);
    assert.deepEqual(columns[1], columns[0]);
  });

  test('uses the words of ipvs for states', async () => {
    const view = new FakeView();
    const states = ['dialling', 'half-closed', 'flow'] as const;
    view.connections = async function* (filter) {
      const address = '10.0.0.1' as Address;
      const rest = {
        name: 'a/b',
        protocol: 'TCP',
        client: { address, port: 1 },
        virtual: { address, port: 2 },
      } as const;
      assert.deepEqual(filter, { namespace: 'a' });
      yield states.map(
        (state): ConnectionView => ({ ...rest, state, ...(state === 'flow' && { expiresMs: 898_000 }) }),
      );
    };
    const run = new Run();
    assert.equal(await run.list('-c a', view), 0);
    assert.deepEqual(run.terminal.printed.split('\n').slice(2), [
      'TCP -      SYN_SENT    10.0.0.1:1            10.0.0.1:2            -                     a/b',
      'TCP -      FIN_WAIT    10.0.0.1:1            10.0.0.1:2            -                     a/b',
      'TCP 14:58  UDP         10.0.0.1:1            10.0.0.1:2            -                     a/b',
      '',
    ]);
  });

  test('can be filtered by port, and exits with 0 when nothing is open', async () => {
    const run = new Run();
    assert.equal(await run.list('-c kube-system/dns:dns'), 0);
    assert.deepEqual(run.names, ['kube-system/dns:dns']);
    assert.equal(await run.list('-c kube-system/dns:54'), 0);
  });
});

describe('list -o json', () => {
  test('is one document with everything, each Service in one line', async () => {
    const run = new Run();
    const view = new FakeView({ services: 5 });
    assert.equal(await run.list('-o json', view), 0);
    const document = JSON.parse(run.terminal.printed);
    assert.deepEqual(document, { version: '0.1.0', node: 'node-1', services: [...view.services()] });
    assert.equal(run.terminal.printed.match(/^\{"name"/gm)?.length, 5);
  });

  test('is a document also with pieces, or an answer, without anything that was requested', async () => {
    const view = new FakeView();
    const [first] = view.services() as Iterable<ServiceView>;
    assert.ok(first);
    view.services = function* () {
      for (const port of [80, 81, 82]) yield { ...first, port };
    };
    const run = new Run();
    assert.equal(await run.list('-o json default/web:82', view, 1), 0);
    assert.deepEqual(JSON.parse(run.terminal.printed).services, [{ ...first, port: 82 }]);
    const nothing = new Run();
    assert.equal(await nothing.list('-o json nobody'), 1);
    assert.deepEqual(JSON.parse(nothing.terminal.printed).services, []);
  });

  test('lists connections', async () => {
    const run = new Run();
    assert.equal(await run.list('-c -o json'), 0);
    assert.equal(JSON.parse(run.terminal.printed).connections.length, 4);
  });

  test('has no control characters', async () => {
    const view = new FakeView();
    const reason = 'x\u202e\u001b]0;';
    const [first] = view.services() as Iterable<ServiceView>;
    view.services = function* () {
      yield { ...(first as ServiceView), reason };
    };
    const run = new Run();
    await run.list('-o json', view);
    assert.ok(!run.terminal.printed.includes('\u202e') && !run.terminal.printed.includes('\u001b'));
    assert.equal(JSON.parse(run.terminal.printed).services[0].reason, reason);
  });
});
