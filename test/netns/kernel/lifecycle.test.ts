import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { NotifySocket } from '../../support/notify-socket.ts';
import { cpuMsOf } from '../../support/processes.ts';
import { isFast, listeningPorts, TCP, testEnvironment, UDP } from '../harness.ts';
import { CAPTURE, FLAVOUR, Iptables, METHOD, Shims } from '../iptables.ts';
import { serviceObjects } from '../manifests.ts';
import { PROGRAM } from '../proxy.ts';
import { BRIDGE_ADDRESS, NODE_ADDRESS, POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

/** Of tests that start the program twice, on a machine that does much else. */
const PATIENCE_MS = 300_000;

describe(`starting, stopping and cleaning up, with ${METHOD}`, () => {
  const environment = testEnvironment('fresh');

  const http = { name: 'http', port: 80, target: TCP.name, nodePort: 30_080 };
  const dns = { name: 'dns', port: 53, target: UDP['udp-name'], protocol: 'UDP', nodePort: 30_053 } as const;
  const web = () => environment.serve({ name: 'web', clusterIP: '10.96.0.100', ports: [http, dns] });

  /** The run with legacy tables has the other engine. */
  const sameForMethods = { skip: CAPTURE === 'nft' && 'it is the same whatever captures' };
  const sameForAll = { skip: METHOD !== 'iptables-nft' && 'it is the same whatever captures and carries' };

  const dump = () => environment.captured.ours();

  /** Runs the program to its end on the node. */
  const run = (...args: string[]) => environment.topology.node.run([PROGRAM, ...args]);

  test('systemd hears that it is ready when its Services are served, and not before', async (t) => {
    // So many that their rules take longer than it takes to look.
    const count = 500;
    const objects = Array.from({ length: count }, (_, i) =>
      serviceObjects({
        name: `s${i}`,
        clusterIP: `10.96.${10 + (i >> 8)}.${i & 255}`,
        ports: [{ port: 80, target: TCP.name }],
        endpoints: POD_ADDRESSES,
      }),
    );
    environment.manifests.write('many.yaml', objects.flat());
    const systemd = await NotifySocket.listen(environment.temporary('notify'));
    t.after(() => systemd.close());
    await environment.startProxy({
      env: { NOTIFY_SOCKET: systemd.path },
      ready: async () => systemd.lines.includes('READY=1'),
    });
    assert.equal((await environment.captured.portals()).length, count);
  });

  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    test(`${signal} closes the listeners and exits with 0; the rules stay`, async () => {
      await environment.startProxy();
      await web();
      const rules = await dump();
      assert.ok((await listeningPorts(environment.topology.node)).length > 0);
      environment.proxy.kill(signal);
      assert.deepEqual(await environment.proxy.exited(), { code: 0, signal: null });
      assert.deepEqual(await listeningPorts(environment.topology.node), []);
      assert.deepEqual(await dump(), rules);
      const [line] = environment.proxy.lines({ signal });
      assert.match(line?.msg ?? '', /^Stopping; the rules stay .* kube-userspace-proxy --cleanup removes them$/);
    });
  }

  test('a terminal that closes stops the proxy that was started there, as SIGTERM does', sameForAll, async () => {
    const log = environment.temporary('terminal.log');
    // Its end closes the terminal. The log goes elsewhere, as what is written there then is lost.
    const onTerminal = ['sh', '-c', `exec script -qec "exec $* 2>${log}" /dev/null`, 'sh'];
    await environment.startProxy({ through: onTerminal });
    await web();
    const rules = await dump();
    assert.ok((await listeningPorts(environment.topology.node)).length > 0);
    environment.proxy.kill('SIGKILL');
    await waitFor('no listener is left', async () => (await listeningPorts(environment.topology.node)).length === 0);
    const [stop = '', ...others] = readFileSync(log, 'utf8')
      .split('\n')
      .filter((line) => /SIGHUP|successor|upgrade/.test(line));
    assert.match(stop, /"msg":"Stopping; .*"signal":"SIGHUP"/);
    assert.deepEqual(others, []);
    assert.deepEqual(await dump(), rules);
  });

  for (const args of [['--manifests', '.'], ['--cleanup']]) {
    test(`${args[0]} without root ends at once with one sentence`, sameForAll, async () => {
      const asNobody = ['setpriv', '--reuid=65534', '--clear-groups', PROGRAM, ...args];
      const { code, stdout, stderr } = await environment.topology.node.run(asNobody);
      assert.deepEqual([code, stdout], [1, '']);
      assert.match(stderr, /^kube-userspace-proxy: it runs as user 65534, and iptables needs root; [^\n]*\n$/);
    });
  }

  test('without arguments, the error names every source of Services', sameForAll, async () => {
    const { code, stderr } = await run();
    assert.equal(code, 1);
    for (const flag of ['--kubeconfig', '--master', '--manifests']) assert.ok(stderr.includes(flag), stderr);
  });

  test('SIGTERM during the start ends it with 0, also as process 1, which needs a handler for that', async () => {
    const folder = environment.temporary('slow');
    mkdirSync(folder);
    const run = join(folder, 'run');
    const iptables = ['', '-save', '-restore'].map((verb) => `iptables-${FLAVOUR}${verb}`);
    for (const name of CAPTURE === 'nft' ? ['nft'] : iptables) {
      const script = `#!/bin/sh\ntouch ${run}\nwhile [ -e ${run} ]; do sleep 0.02; done\n`;
      writeFileSync(join(folder, name), script, { mode: 0o755 });
    }
    try {
      await environment.startProxy({
        env: { PATH: `${folder}:${process.env['PATH']}` },
        ready: async () => existsSync(run),
      });
      environment.proxy.kill('SIGTERM');
      await waitFor('it to end while that program runs', () => !environment.proxy.running);
      rmSync(run);
      assert.deepEqual(await environment.proxy.exited(), { code: 0, signal: null });
      assert.equal(environment.proxy.lines({ msg: 'Stopping while still starting', signal: 'SIGTERM' }).length, 1);
    } finally {
      rmSync(run, { force: true });
    }
  });

  test('SIGTERM under load ends it promptly, with connections open and dials under way', sameForMethods, async () => {
    await environment.startProxy();
    const service = await web();
    const echo = await environment.serve({ name: 'echo', ports: [{ port: 7, target: TCP.echo }] });
    await environment.client.call('openMany', { ...echo, count: 200 });
    const load = await environment.client.call('startLoad', { ...service, concurrency: 8 });
    await waitFor('the load flows', async () => {
      return ((await environment.client.call('loadSoFar', { load })).names['pod-1'] ?? 0) > 20;
    });
    const begun = performance.now();
    assert.equal(await environment.proxy.stop(), 0);
    assert.ok(performance.now() - begun < 20_000, `${performance.now() - begun} ms`);
    await environment.client.call('stopLoad', { load });
  });

  test('a restart adopts the rules that it finds and never flushes them', async () => {
    await environment.startProxy();
    const service = await web();
    await environment.proxy.stop();
    const countRules = async () => (await dump()).filter((line) => line.includes('test/web')).length;
    const before = await countRules();
    const samples: number[] = [];
    let sampling = true;
    const sampler = (async () => {
      while (sampling) samples.push(await countRules());
    })();
    await environment.startProxy();
    sampling = false;
    await sampler;
    assert.ok(samples.length > 3);
    assert.deepEqual([...new Set(samples)], [before]);
    const { names, failures } = await environment.client.call('requests', { ...service, count: 6 });
    assert.deepEqual({ names, failures }, { names: { 'pod-1': 2, 'pod-2': 2, 'pod-3': 2 }, failures: {} });
  });

  test('a worker that crashes takes its process along; the rules stay, and the next process serves by them', {
    skip: !isFast,
  }, async () => {
    await environment.startProxy({ readyMs: PATIENCE_MS });
    const service = await web();
    const rules = await dump();
    const { pid } = environment.proxy;
    const threads = `/proc/${pid}/task`;
    const isWorker = (thread: string) => readFileSync(`${threads}/${thread}/comm`, 'utf8').startsWith('data-plane');
    const worker = readdirSync(threads).find(isWorker);
    // As when native code in this thread uses a wrong address.
    await environment.topology.node.run([
      'strace',
      '-p',
      `${worker}`,
      '-o',
      '/dev/null',
      '-e',
      'inject=all:signal=SEGV',
    ]);
    assert.equal((await environment.proxy.exited()).signal, 'SIGSEGV');
    assert.deepEqual(await dump(), rules);
    await environment.startProxy({ readyMs: PATIENCE_MS });
    assert.deepEqual((await environment.client.call('requests', { ...service, count: 6 })).failures, {});
    assert.deepEqual(await dump(), rules);
  });

  test('a restart removes the rules of a Service that was deleted meanwhile', async () => {
    await environment.startProxy();
    await web();
    await environment.proxy.stop();
    environment.manifests.remove('web.yaml');
    await environment.startProxy();
    await environment.waitForRules('10.96.0.100', 0);
    await waitFor('nothing names it', async () => !(await dump()).some((line) => line.includes('test/web')));
  });

  test('--cleanup removes all our rules in both families and both flavours, and keeps foreign rules', async () => {
    const all = [new Iptables(environment.topology.node, 'nft'), new Iptables(environment.topology.node, 'legacy')];
    const traces = async () => {
      const found = [...(await environment.nft.ours(4)), ...(await environment.nft.ours(6))];
      for (const iptables of all) {
        for (const table of ['nat', 'filter', 'mangle'] as const) {
          for (const family of [4, 6] as const) {
            found.push(...(await iptables.save(table, family)).filter((line) => line.includes('KUBE-')));
          }
        }
      }
      return found;
    };
    await environment.startProxy();
    const { host } = await web();
    const { socket } = await environment.client.call('udpOpen', {});
    const question = { socket, host, port: 53, text: 'who' };
    assert.match((await environment.client.call('udpAsk', question))?.text ?? '', /^pod-/);
    const flows = async () =>
      (
        await environment.topology.node.output(['conntrack', '-L', '-p', 'udp', '--orig-dst', host, '--dst-nat'])
      ).trim();
    assert.notEqual(await flows(), '');
    await environment.proxy.stop();
    for (const iptables of all) {
      for (const family of [4, 6] as const) {
        // As kube-proxy does, to notice a flush.
        for (const table of ['nat', 'filter', 'mangle']) {
          await iptables.must(`-t ${table} -N KUBE-PROXY-CANARY`, family);
        }
        // As another run, another flavour or an old kube-proxy may have left it.
        await iptables.run('-t nat -N KUBE-PORTALS-CONTAINER', family);
        await iptables.run('-t nat -N KUBE-NODEPORT-HOST', family);
        await iptables.must('-t nat -A KUBE-NODEPORT-HOST -p tcp --dport 30099 -j ACCEPT', family);
        await iptables.must('-t nat -I PREROUTING -m comment --comment handle -j KUBE-PORTALS-CONTAINER', family);
        await iptables.must('-t nat -A OUTPUT -p tcp --dport 9 -j ACCEPT', family);
        await iptables.run('-N KUBE-NODEPORT-NON-LOCAL', family);
        await iptables.must('-A INPUT -p tcp --dport 9 -j DROP', family);
      }
    }
    assert.ok((await traces()).length > 20);

    const { code, stderr } = await run('--cleanup');
    assert.equal(code, 0, stderr);
    assert.deepEqual(await traces(), []);
    assert.equal(await flows(), '', 'the client is not led to a port at which nobody listens any more');
    for (const iptables of all) {
      for (const family of [4, 6] as const) {
        assert.ok((await iptables.save('nat', family)).includes('-A OUTPUT -p tcp -m tcp --dport 9 -j ACCEPT'));
        assert.ok((await iptables.save('filter', family)).includes('-A INPUT -p tcp -m tcp --dport 9 -j DROP'));
        await iptables.must('-t nat -F', family);
        await iptables.must('-F', family);
      }
    }
  });

  test('--cleanup on a node without any trace succeeds', async () => {
    const { code, stderr } = await run('--cleanup');
    assert.equal(code, 0, stderr);
  });

  for (const [what, args] of [
    ['a manifest path that does not exist', ['--manifests', '/no/such/path']],
    ['no manifests', []],
    ['an unknown flag', ['--manifests', '.', '--bind-adress', NODE_ADDRESS]],
    ['a wrong duration', ['--manifests', '.', '--udp-timeout', 'soon']],
    ['a bind address of another machine', ['--manifests', '.', '--bind-address', '192.0.2.1']],
    ['a loopback bind address', ['--manifests', '.', '--bind-address', '127.0.0.1']],
  ] as const) {
    test(`${what}: one line on stderr, exit code 1, nothing touched`, sameForAll, async () => {
      const { code, stdout, stderr } = await run('--iptables-mode', FLAVOUR, ...args);
      assert.equal(code, 1, stderr);
      assert.match(stderr, /^[^\n]+\n$/);
      assert.equal(stdout, '');
      assert.deepEqual(await dump(), []);
    });
  }

  test('--nodeport-addresses keeps NodePorts to those addresses, of which localhost is one', async () => {
    await environment.startProxy({ args: ['--nodeport-addresses', '192.168.50.0/24,localhost'] });
    await web();
    assert.match((await environment.node.call('request', { host: '127.0.0.1', port: 30_080 })).name, /^pod-/);
    const ask = (host: string) => environment.client.call('request', { host, port: 30_080 });
    assert.match((await ask(NODE_ADDRESS)).name, /^pod-/);
    await assert.rejects(ask(BRIDGE_ADDRESS), { code: 'ECONNREFUSED' });
    const { socket } = await environment.client.call('udpOpen', {});
    const question = { socket, port: 30_053, text: 'who' };
    const answer = await environment.client.call('udpAsk', { ...question, host: NODE_ADDRESS });
    assert.match(answer?.text ?? '', /^pod-/);
    const none = await environment.client.call('udpAsk', { ...question, host: BRIDGE_ADDRESS, timeoutMs: 500 });
    assert.equal(none, undefined);
  });

  test('a Service port gives up a local port that becomes a NodePort, and both are served', async () => {
    await environment.startProxy({ args: ['--proxy-port-range', '31000-31002'] });
    const first = { port: 80, target: TCP.name };
    const service = await environment.serve({ name: 'first', ports: [first] });
    const nodePort = await environment.localPort('test/first');
    const ports = [{ port: 80, target: TCP.name, nodePort }];
    await environment.serve({ name: 'second', ports });
    // No rule while it moves.
    const isElsewhere = (port: number) => port !== nodePort;
    await waitFor('the first has moved', () => environment.localPort('test/first').then(isElsewhere, () => false));
    for (const target of [service, { host: NODE_ADDRESS, port: nodePort }]) {
      assert.deepEqual((await environment.client.call('requests', { ...target, count: 3 })).failures, {});
    }
  });

  test('binding a port is retried, and the other Services are served meanwhile', sameForMethods, async () => {
    const range = [31_010, 31_011];
    for (const port of range) await environment.node.serve(port, 'name');
    await environment.startProxy({ args: ['--proxy-port-range', '31010-31011'] });
    const late = { name: 'late', clusterIP: '10.96.0.101', ports: [{ port: 80, target: TCP.name }] };
    environment.write({ ...late, endpoints: POD_ADDRESSES });
    await waitFor(
      'the conflict is in the log',
      () => environment.proxy.lines({ level: 'error', svc: 'test/late' }).length > 0,
    );
    // The agent holds the TCP ports only.
    const dns = await environment.serve({
      name: 'dns',
      ports: [{ port: 53, target: UDP['udp-name'], protocol: 'UDP' }],
      endpoints: [POD_ADDRESSES[0]],
    });
    assert.deepEqual(await environment.client.call('udpFlows', { ...dns, count: 1 }), { 'pod-1': 1 });
    for (const port of range) await environment.node.call('unlisten', { port });
    await environment.waitForRules('10.96.0.101', 1);
    assert.match((await environment.client.call('request', { host: '10.96.0.101', port: 80 })).name, /^pod-/);
  });

  test('on an idle node the proxy starts no program and uses next to no processor time', async () => {
    const shims = await Shims.create(environment.temporary('shims'));
    await environment.startProxy({ args: ['--iptables-sync-period', '1h'], env: { PATH: shims.path } });
    await web();
    const cpuMs = () => cpuMsOf(environment.proxy.pid);
    // Its last sync is followed by a look at what it has written, two seconds later at most.
    let programs = -1;
    await waitFor('no program is started for a while', async () => {
      const before = programs;
      programs = shims.commands().length;
      if (programs === before) return true;
      await sleep(3000);
      return false;
    });
    shims.forget();
    const before = cpuMs();
    await sleep(5000);
    assert.deepEqual(shims.commands(), []);
    // One that spins would have thousands, and hundreds where others have most of the machine.
    assert.ok(cpuMs() - before <= 300, `${cpuMs() - before} ms of processor time in 5 s`);
  });
});
