import assert from 'node:assert/strict';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { TCP } from '../netns/harness.ts';
import { POD_ADDRESSES } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';
import { SUITE } from '../packaging/chroot.ts';
import { Machine, NAME } from '../packaging/machine.ts';
import { packaged } from '../packaging/release.ts';
import { type Commands, commandsOf } from '../support/walk.ts';
import { Cluster, NODE_NAME, type ServedService } from './cluster.ts';
import { binary, type User } from './control-plane.ts';

const PODS = ['pod-1', 'pod-2', 'pod-3'];

/** Where the reader has the package. */
const DOWNLOADS = '/root/downloads';

/** What stands for programs of the reader's: it prints a kubeconfig, and logs in on the node. */
const STUBS = {
  kubeadm: '[ "$1 $2 $3 $4" = "kubeconfig user --client-name system:kube-proxy" ] && cat /root/proxy.kubeconfig',
  ssh: '[ "$1" = root@node-1 ] && shift && sh -c "$*"',
};

/** What kubeadm would have made, as far as it counts here. */
const KUBE_PROXY = {
  apiVersion: 'apps/v1',
  kind: 'DaemonSet',
  metadata: { name: 'kube-proxy', namespace: 'kube-system' },
  spec: {
    selector: { matchLabels: { 'k8s-app': 'kube-proxy' } },
    template: {
      metadata: { labels: { 'k8s-app': 'kube-proxy' } },
      spec: { hostNetwork: true, containers: [{ name: 'kube-proxy', image: 'registry.k8s.io/kube-proxy:v1.37.1' }] },
    },
  },
};

/** Its Pod on this node, which a controller would make. */
const POD = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'kube-proxy-node-1', namespace: 'kube-system', labels: { 'k8s-app': 'kube-proxy' } },
  spec: { ...KUBE_PROXY.spec.template.spec, nodeName: NODE_NAME },
};

const ACCOUNT = { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'default', namespace: 'kube-system' } };

/** What kube-proxy leaves in the mode iptables: here it leads the Service `kubernetes` into nothing. */
const LEFT = `*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-NPX46M4PTMTKRN6Y - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 443 -j KUBE-SVC-NPX46M4PTMTKRN6Y
-A KUBE-SVC-NPX46M4PTMTKRN6Y -p tcp -j DNAT --to-destination 192.0.2.7:6443
COMMIT
`;

/** Two firewalls that let nobody in but whom this test needs. */
const LEGACY_FIREWALL = `*filter
:INPUT DROP [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A INPUT -i lo -j ACCEPT
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
`;
const NFT_FIREWALL = `table inet filter {
  chain input {
    type filter hook input priority filter; policy drop;
    iif lo accept
    ct state established,related accept
  }
}
`;

describe(`docs/migration.md, pasted into a fresh machine (${SUITE}) of a real cluster`, () => {
  const commands = commandsOf('docs/migration.md');
  let work: string;
  let cluster: Cluster;
  let machine: Machine;
  /** Why there is no machine. */
  let problem: string | undefined;
  let service: ServedService;

  before(async () => {
    work = mkdtempSync(join(tmpdir(), 'migration-'));
    const deb = packaged('new').debianPackage;
    cluster = await Cluster.create();
    const { topology, manifests } = cluster.environment;
    try {
      machine = await Machine.boot(topology.node, manifests.directory);
    } catch (error) {
      problem = `systemd cannot be booted here: ${(error as Error).message}`;
      return;
    }
    // A controller of the server's own makes it, a moment after the start.
    await waitFor('the namespace kube-system exists', () =>
      cluster.admin.get('namespaces', 'kube-system').catch(() => undefined),
    );
    for (const object of [ACCOUNT, KUBE_PROXY, POD]) await cluster.kubectl(['create', '-f=-'], JSON.stringify(object));
    service = await cluster.create({ name: 'web', ports: [{ port: 80, target: TCP.name }] }, POD_ADDRESSES);

    const inside = (path: string) => join(machine.path, path);
    for (const folder of [DOWNLOADS, 'root/.kube']) mkdirSync(inside(folder));
    cpSync(deb, inside(join(DOWNLOADS, basename(deb))));
    cpSync(binary('KUBECTL'), inside('usr/local/bin/kubectl'));
    for (const [name, script] of Object.entries(STUBS)) {
      writeFileSync(inside(`usr/local/bin/${name}`), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
    }
    writeFileSync(inside('root/.kube/config'), kubeconfig('admin'));
    writeFileSync(inside('root/proxy.kubeconfig'), kubeconfig('proxy'));
    await machine.run('hostname', NODE_NAME);
    await topology.node.output(['iptables-nft-restore', '--noflush'], { input: LEFT });
    await topology.node.output(['iptables-legacy-restore'], { input: LEGACY_FIREWALL });
    await topology.node.output(['nft', '-f', '-'], { input: NFT_FIREWALL });
  });

  after(async () => {
    await machine?.stop();
    await cluster?.remove();
    rmSync(work, { recursive: true });
  });

  /** With everything in it, as kubeadm makes one. */
  function kubeconfig(user: User): string {
    const { server, caFile } = cluster.plane;
    const authority = readFileSync(caFile).toString('base64');
    return JSON.stringify({
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: 'here', cluster: { server, 'certificate-authority-data': authority } }],
      users: [{ name: user, user: { token: cluster.plane.token(user) } }],
      contexts: [{ name: user, context: { cluster: 'here', user } }],
      'current-context': user,
    });
  }

  let pasted = 0;

  /** The next commands, which must be of this section and place. With the variables that the reader's shell has. */
  function next(heading: string, where: string): string {
    const { script, ...block } = commands[pasted] as Commands;
    assert.deepEqual(block, { heading, where });
    const variables = commands
      .slice(0, pasted)
      .filter((each) => each.where === where)
      .flatMap((each) => each.script.split('\n').filter((line) => /^(\w+=|\. )/.test(line)));
    pasted += 1;
    return [`cd ${DOWNLOADS}`, ...variables, script].join('\n');
  }

  /** Pastes them. Gives what they print. */
  const paste = (heading: string, where: 'node' | 'admin') =>
    machine.run('bash', '-euo', 'pipefail', '-c', next(heading, where));

  const daemonSet = async () =>
    JSON.parse(await cluster.kubectl(['get', 'daemonset', 'kube-proxy', '--namespace=kube-system', '-o=json']));
  const isLabelled = async () => 'userspace-proxy' in (await cluster.admin.get('nodes', NODE_NAME)).metadata.labels;

  test('1. it is installed with credentials, and nothing runs', async (t) => {
    if (problem !== undefined) return t.skip(problem);
    await paste('1. Install', 'node');
    await paste('1. Install', 'admin');
    assert.equal(await machine.run('stat', '--format=%a', '/var/lib/kube-proxy/kubeconfig.conf'), '600\n');
    assert.equal(await machine.property('ActiveState'), 'inactive');
  });

  test('2. check names what kube-proxy and a firewall do, and the rules mend the latter', async (t) => {
    if (problem !== undefined) return t.skip(problem);
    const findings = await paste('2. Look first', 'node');
    assert.match(findings, /^ok +API server /m);
    assert.match(findings, /^ok +permissions /m);
    assert.match(findings, /^warn +other proxies .* chains of kube-proxy.*→ kube-userspace-proxy --cleanup/m);
    const cure = next('2. Look first', 'legacy').split('\n').at(-1)!;
    assert.match(findings, /^warn +firewall +INPUT of iptables-legacy drops/m);
    assert.ok(findings.includes(`→ ${cure}`), findings);
    await machine.run('sh', '-euc', cure);
    // Debian's nft is not in the machine, but its kernel's tables are here as well.
    await cluster.environment.topology.node.output(['sh', '-euc', next('2. Look first', 'nft').split('\n').at(-1)!]);
  });

  test('3. kube-proxy stays away', async (t) => {
    if (problem !== undefined) return t.skip(problem);
    const pasting = paste('3. Keep kube-proxy off the node', 'admin');
    await waitFor('the patch', async () => (await daemonSet()).spec.template.spec.affinity !== undefined);
    assert.ok(await isLabelled());
    // As its controller would.
    await cluster.kubectl(['delete', 'pod', POD.metadata.name, '--namespace=kube-system', '--force']);
    await pasting;
    const [{ matchExpressions }] = (await daemonSet()).spec.template.spec.affinity.nodeAffinity
      .requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms;
    assert.deepEqual(matchExpressions, [{ key: 'userspace-proxy', operator: 'DoesNotExist' }]);
  });

  test('4. what it left is removed', async (t) => {
    if (problem !== undefined) return t.skip(problem);
    await paste('4. Remove what it left', 'node');
    assert.doesNotMatch(await machine.run('iptables-save'), /KUBE-S/);
    await paste('4. Remove what it left', 'admin');
    const [pod] = JSON.parse(await cluster.kubectl(['get', 'pods', '--namespace=kube-system', '-o=json'])).items;
    const [{ image, args, command, securityContext }] = pod.spec.containers;
    assert.deepEqual(
      [pod.spec.nodeName, pod.spec.hostNetwork, image, command ?? args, securityContext],
      [NODE_NAME, true, 'registry.k8s.io/kube-proxy:v1.37.1', ['kube-proxy', '--cleanup'], { privileged: true }],
    );
  });

  test('5. the proxy serves', async (t) => {
    if (problem !== undefined) return t.skip(problem);
    const shown = await paste('5. Start', 'node');
    assert.match(shown, /^The proxy can serve here/m);
    assert.doesNotMatch(shown, /^(warn|fail) +(firewall|other proxies) /m);
    assert.match(shown, /^default\/kubernetes:https takes it; the next connection goes to 192\.168\.50\.10:6443/m);
    await cluster.isUp(service, PODS);
  });

  test('and back: nothing stays', async (t) => {
    if (problem !== undefined) return t.skip(problem);
    await paste('Back to kube-proxy', 'node');
    assert.doesNotMatch(await machine.run('iptables-save'), /KUBE-/);
    await paste('Back to kube-proxy', 'admin');
    assert.ok(!(await isLabelled()));
    assert.equal((await daemonSet()).spec.template.spec.affinity, undefined);
    await paste('Back to kube-proxy', 'node');
    assert.equal((await machine.try('find', '/etc', '/usr', '/var/lib/kube-proxy', '-name', `*${NAME}*`)).stdout, '');
    assert.equal(pasted, commands.length);
  });
});
