import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { copyFileSync, readFileSync, rmSync } from 'node:fs';
import { beforeEach, describe, test } from 'node:test';
import { inEmptyNamespace } from '../../../src/check/kernel-rules.ts';
import { createExec } from '../../../src/kernel/iptables/exec.ts';
import { InstalledPrograms } from '../../../src/kernel/iptables/flavour.ts';
import { createIptables, neededTools } from '../../../src/kernel/iptables/iptables.ts';
import { systemClock } from '../../../src/util/system-clock.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';
import type { Agent } from '../agent.ts';
import { listeningPorts, NAMING, TCP, testEnvironment } from '../harness.ts';
import { FLAVOUR, type Flavour } from '../iptables.ts';
import { ProxyProcess } from '../proxy.ts';
import { NODE_ADDRESS, POD_ADDRESSES } from '../topology.ts';
import { PATIENCE_MS, waitFor } from '../wait.ts';

interface Checked {
  readonly code: number | null;
  /** `level  check  what was found → what to do` */
  readonly lines: readonly string[];
  /** Of one check, those that are not fine. */
  troubles(check: string): string[];
  line(pattern: RegExp): string;
}

describe(`check on a node with iptables-${FLAVOUR}`, () => {
  const environment = testEnvironment('fresh');

  // Without a Service, a check fails.
  beforeEach(() =>
    environment.write({ name: 'web', clusterIP: environment.clusterIP(), ports: [{ port: 80, target: 80 }] }),
  );

  async function check(
    args: readonly string[] = [],
    options: { readonly env?: NodeJS.ProcessEnv; readonly through?: readonly string[] } = {},
  ): Promise<Checked> {
    const source = ['--manifests', environment.manifests.directory, '--iptables-mode', FLAVOUR];
    const program = new ProxyProcess(environment.topology.node, ['check', ...source, ...args], options);
    const { code } = await program.exited();
    const lines = program.log.map(({ msg }) => msg);
    return {
      code,
      lines,
      troubles: (name) => lines.filter((line) => line.slice(6).startsWith(`${name} `) && !line.startsWith('ok ')),
      line: (pattern) => {
        const found = lines.find((line) => pattern.test(line));
        assert.ok(found, `${pattern} is not in\n${lines.join('\n')}`);
        return found;
      },
    };
  }

  /** Every rule of both flavours, and who listens. */
  async function machine(): Promise<string[]> {
    const { node } = environment.topology;
    const flavours: readonly Flavour[] = ['nft', 'legacy'];
    const saves = flavours.flatMap((flavour) => [`iptables-${flavour}-save`, `ip6tables-${flavour}-save`]);
    const rules = await Promise.all(saves.map((save) => node.output([save])));
    const lines = rules
      .join('')
      .split('\n')
      .filter((line) => !line.startsWith('#'));
    return [...lines.map((line) => line.replace(/\[\d+:\d+\]/, '')), ...(await listeningPorts(node))];
  }

  test('finds nothing in the way, asks the kernel for every match, and changes nothing', async () => {
    const before = await machine();
    const { code, troubles, line } = await check(['--dataplane', 'fast']);
    assert.deepEqual(await machine(), before);
    assert.equal(code, 0);
    for (const name of [
      'privileges',
      'iptables',
      'families',
      'kernel rules',
      'firewall',
      'other proxies',
      'addresses',
    ]) {
      assert.deepEqual(troubles(name), []);
    }
    assert.deepEqual(troubles('engine'), []);
    line(/^(?:ok {4}|warn {2})congestion {5}TCP uses \w+, as the node does/);
    line(/^ok {4}kernel rules {3}the kernel accepts every kind of rule \(IPv4\)$/);
    line(new RegExp(`^ok    iptables       iptables-${FLAVOUR}: `));
    line(new RegExp(`Services are served over IPv4 \\(node address ${NODE_ADDRESS.replaceAll('.', '\\.')}\\)$`));
    line(/^The proxy can serve here/);
  });

  test('knows the proxy that runs here already, and leaves it alone', async () => {
    await environment.startProxy();
    const service = await environment.serve({ name: 'web' });
    const before = await machine();
    const { code, line } = await check();
    assert.deepEqual(await machine(), before);
    assert.equal(code, 0);
    line(/^ok {4}addresses {6}the healthz address 0\.0\.0\.0:10256 is in use, and a proxy of this program runs here$/);
    line(
      /^ok {4}other proxies {2}a proxy of this program serves this node \(process \d+\); a second one would not start/,
    );
    line(/^ok {4}other proxies {2}the tables of iptables-\w+ have \d+ chains of this proxy, which a run takes over$/);
    assert.match((await environment.client.call('request', service)).name, /^pod-/);
  });

  test('finds chains of another proxy, and programs at our ports and at a NodePort', async () => {
    await environment.iptables.must('-t nat -N KUBE-SERVICES');
    const ports = [{ port: 80, target: TCP.name, nodePort: 30_080 }];
    environment.write({ name: 'web', clusterIP: '10.96.0.100', ports });
    const script = (port: number) => `require('net').createServer().listen(${port}, () => console.log())`;
    const programs = [10_256, 30_080].map((port) =>
      environment.topology.node.spawn([process.execPath, '-e', script(port)]),
    );
    try {
      await Promise.all(programs.map(({ stdout }) => new Promise((resolve) => stdout!.once('data', resolve))));
      const { code, line } = await check();
      assert.equal(code, 0);
      line(/^warn {2}other proxies {2}the tables .* have 1 chain of kube-proxy, .* → kube-userspace-proxy --cleanup/);
      line(/^warn {2}addresses {6}the healthz address .* is taken by node \(\d+\)/);
      line(/^warn {2}NodePorts {6}node \(\d+\) listens at 30080\/TCP, the NodePort of test\/web: /);
      assert.equal((await check(['--bind-address-hard-fail'])).code, 1);
    } finally {
      for (const program of programs) program.kill('SIGKILL');
    }
  });

  test('distinguishes a kube-proxy that runs on this node from one in another network', async () => {
    const program = environment.temporary('kube-proxy');
    copyFileSync('/bin/sleep', program);
    const elsewhere = environment.topology.pods[0].spawn([program, '600']);
    const named = (child: ChildProcess) => readFileSync(`/proc/${child.pid}/comm`, 'utf8') === 'kube-proxy\n';
    try {
      await waitFor('the program runs', () => named(elsewhere));
      assert.deepEqual((await check()).troubles('other proxies'), []);
      const rival = environment.topology.node.spawn([program, '600']);
      try {
        await waitFor('the program runs', () => named(rival));
        // As an upgrade does: what runs is not what is there.
        rmSync(program);
        const { code, line } = await check();
        assert.equal(code, 1);
        line(new RegExp(`^fail  other proxies  kube-proxy runs on this node \\(process ${rival.pid}\\)`));
      } finally {
        rival.kill('SIGKILL');
      }
    } finally {
      elsewhere.kill('SIGKILL');
    }
  });

  test('has the kernel itself judge rules', async () => {
    const exec = createExec({ clock: systemClock });
    const tools = await neededTools(FLAVOUR, new InstalledPrograms(exec));
    const iptables = await createIptables(tools, { exec: inEmptyNamespace(exec), log: new RecordingLog() });
    // The tools take that; the kernel has no such NAT on the way in.
    const refused = iptables.restore('IPv4', '*nat\n-A INPUT -p tcp -j DNAT --to-destination 192.0.2.1\nCOMMIT\n');
    await assert.rejects(refused, { code: 'refused' });
  });

  test('a firewall that drops by default accepts Services and health checks alone; one of nft is reported', async () => {
    const { node } = environment.topology;
    await environment.startProxy({ args: ['--hostname-override', 'node-a'] });
    const [clusterIP, healthCheckNodePort] = [environment.clusterIP(), environment.nodePort()];
    environment.write({
      name: 'web',
      clusterIP,
      loadBalancerIPs: ['203.0.113.5'],
      ports: [{ ...NAMING[0], nodePort: environment.nodePort() }, NAMING[1]],
      endpoints: POD_ADDRESSES,
      spec: { externalTrafficPolicy: 'Local', healthCheckNodePort },
    });
    await environment.waitForRules(clusterIP, 2);
    const { client, outside } = environment;
    await environment.node.serve(8_500, 'name');
    const iptables = (rule: string) => node.output([`iptables-${FLAVOUR}`, ...rule.split(' ')]);
    const usual = ['-i lo', '-m conntrack --ctstate RELATED,ESTABLISHED'];
    for (const match of usual) await iptables(`-A INPUT ${match} -j ACCEPT`);
    await iptables('-P INPUT DROP');
    try {
      const ask = (agent: Agent, port: number, host: string, timeoutMs = PATIENCE_MS) =>
        agent.call('outcomes', {
          attempts: [
            { protocol: 'tcp', host, port },
            { protocol: 'udp', host, port },
          ],
          timeoutMs,
        });
      for (const agent of [client, outside, environment.node]) {
        for (const outcome of await ask(agent, 80, clusterIP)) assert.match(outcome, /^pod-/, agent.name);
      }
      const url = `http://${NODE_ADDRESS}:${healthCheckNodePort}/`;
      assert.match((await outside.call('httpGet', { url })).body, /"localEndpoints": 0/);
      const localPort = await environment.localPort('test/web:tcp');
      const closed = [{ protocol: 'tcp', host: NODE_ADDRESS, port: localPort }] as const;
      assert.deepEqual(
        await outside.call('outcomes', { attempts: closed, timeoutMs: PATIENCE_MS }),
        ['ECONNREFUSED'],
        'as without the firewall',
      );
      assert.deepEqual(await ask(outside, 8_500, NODE_ADDRESS, 300), ['timeout', 'timeout'], 'anything else');
      assert.deepEqual((await check()).troubles('firewall'), []);
      const drops =
        'type filter hook input priority 0; policy drop; iifname lo accept; ct state established,related accept;';
      await node.output(['nft', '-f', '-'], { input: `table inet fw { chain input { ${drops} }; }\n` });
      const { line } = await check();
      const cure =
        /→ nft (insert rule inet fw input ct status dnat accept),/.exec(line(/^warn {2}firewall /))?.[1] ?? '';
      assert.deepEqual(await ask(client, 80, clusterIP, 300), ['timeout', 'timeout']);
      await node.output(['nft', ...cure.split(' ')]);
      for (const outcome of await ask(client, 80, clusterIP)) assert.match(outcome, /^pod-/);
      assert.deepEqual((await check()).troubles('firewall'), []);
    } finally {
      await node.run(['nft', 'delete', 'table', 'inet', 'fw']);
      await iptables('-P INPUT ACCEPT');
      for (const match of usual) await iptables(`-D INPUT ${match} -j ACCEPT`);
    }
  });

  test('says why the fast engine cannot be used where nothing reaches 127.0.0.1', async () => {
    const { node } = environment.topology;
    await node.output([`iptables-${FLAVOUR}`, '-P', 'INPUT', 'DROP']);
    try {
      const { line } = await check();
      line(
        /^warn {2}engine {9}the fast engine cannot run here: what is sent to 127\.0\.0\.1 does not arrive; let it in/,
      );
    } finally {
      await node.output([`iptables-${FLAVOUR}`, '-P', 'INPUT', 'ACCEPT']);
    }
  });

  test('says that a node does not forward, where pods reach Services all the same', async () => {
    const { node } = environment.topology;
    await node.output(['sh', '-c', 'echo 0 > /proc/sys/net/ipv4/ip_forward']);
    try {
      await environment.startProxy();
      const service = await environment.serve({ name: 'web' });
      assert.match((await environment.client.call('request', service)).name, /^pod-/);
      assert.match((await environment.outside.call('request', service)).name, /^pod-/);
      (await check()).line(/^warn {2}kernel {9}this node does not forward IPv4: pods reach Services/);
    } finally {
      await node.output(['sh', '-c', 'echo 1 > /proc/sys/net/ipv4/ip_forward']);
    }
  });
});
