import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, test } from 'node:test';
import type { Config } from '../../src/config/config.ts';
import { DEFAULT_CONTROL_SOCKET } from '../../src/config/values.ts';
import { watchdogPeriodMs } from '../../src/kernel/service-manager.ts';
import { parseCommandLine } from '../support/command-line.ts';
import { deployedArguments, deployedObjects, documentsOf } from './manifest.ts';

const KUSTOMIZE = join(import.meta.dirname, '../../deploy/kustomize');

const ANALYZE = '/usr/bin/systemd-analyze';

const CAPABILITIES = ['NET_ADMIN', 'NET_RAW', 'NET_BIND_SERVICE'];

function read(path: string): string {
  return readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');
}

function configOf(argv: readonly string[]): Config {
  const line = parseCommandLine(argv);
  assert.equal(line.kind, 'run', 'text' in line ? line.text : '');
  return (line as Extract<typeof line, { kind: 'run' }>).config;
}

describe('deploy/kustomize/base/daemonset.yaml', () => {
  const objects = deployedObjects();
  const pod = objects.get('DaemonSet').spec.template.spec;
  const [container, ...others] = pod.containers;

  test('its only right is that of kube-proxy, for its own account', () => {
    assert.deepEqual([...objects.keys()], ['ServiceAccount', 'ClusterRoleBinding', 'DaemonSet']);
    const { roleRef, subjects } = objects.get('ClusterRoleBinding');
    assert.deepEqual([roleRef.kind, roleRef.name], ['ClusterRole', 'system:node-proxier']);
    const { name, namespace } = objects.get('ServiceAccount').metadata;
    assert.deepEqual(subjects, [{ kind: 'ServiceAccount', name, namespace }]);
    assert.equal(pod.serviceAccountName, name);
    assert.deepEqual(others, []);
  });

  test('the command line is accepted; it names the node and an API server that is no ClusterIP of ours', () => {
    const config = configOf(deployedArguments({ node: 'node-1' }));
    assert.equal(config.hostnameOverride, 'node-1');
    assert.ok(config.source.kind === 'kubernetes');
    assert.match(config.source.master ?? '', /^https:\/\/192\.0\.2\.1:6443/);
    const nodeName = { name: 'NODE_NAME', valueFrom: { fieldRef: { fieldPath: 'spec.nodeName' } } };
    assert.deepEqual(container.env, [{ name: 'API_SERVER', value: config.source.master }, nodeName]);
  });

  test('it may do what it needs and no more', () => {
    const { capabilities, privileged, allowPrivilegeEscalation, readOnlyRootFilesystem } = container.securityContext;
    assert.deepEqual(capabilities, { drop: ['ALL'], add: CAPABILITIES });
    assert.equal(privileged, undefined);
    assert.equal(allowPrivilegeEscalation, false);
    assert.equal(readOnlyRootFilesystem, true);
    assert.equal(pod.hostPID ?? pod.hostIPC, undefined);
  });

  test('kernel settings are made by an init container of the same image', () => {
    const [settings, ...more] = pod.initContainers;
    assert.deepEqual(more, []);
    assert.equal(settings.image, container.image);
    assert.deepEqual(settings.securityContext, { privileged: true, readOnlyRootFilesystem: true });
    assert.equal(parseCommandLine(settings.args).kind, 'init');
  });

  test('it runs on the network of every Linux node, before anything else does', () => {
    assert.deepEqual(pod.nodeSelector, { 'kubernetes.io/os': 'linux' });
    assert.equal(pod.hostNetwork, true);
    assert.equal(pod.priorityClassName, 'system-node-critical');
    assert.deepEqual(pod.tolerations, [{ operator: 'Exists' }]);
    assert.equal(pod.enableServiceLinks, false);
  });

  test('it shares the lock of iptables with the node, and keeps its state there; its control socket is its own', () => {
    const hostPaths = pod.volumes.flatMap((volume: { hostPath?: { path: string } }) => volume.hostPath?.path ?? []);
    const { state } = configOf(deployedArguments({ node: 'node-1' }));
    assert.deepEqual(hostPaths, ['/run/xtables.lock', state?.directory]);
    assert.deepEqual(container.volumeMounts, [
      { name: 'xtables-lock', mountPath: '/run/xtables.lock' },
      { name: 'control-socket', mountPath: dirname(DEFAULT_CONTROL_SOCKET) },
      { name: 'state', mountPath: state?.directory },
    ]);
  });

  test('the probes ask where the program listens by default', () => {
    const { healthzAddress } = configOf(deployedArguments({ node: 'node-1' }));
    const { livenessProbe, readinessProbe } = container;
    assert.deepEqual(livenessProbe.httpGet, { path: '/livez', port: healthzAddress?.port });
    const { periodSeconds, timeoutSeconds, failureThreshold } = livenessProbe;
    assert.equal(periodSeconds * failureThreshold, 60, "as systemd's watchdog");
    assert.equal(timeoutSeconds, periodSeconds, 'a late answer counts');
    assert.deepEqual(readinessProbe.httpGet, { path: '/healthz', port: healthzAddress?.port });
    const unreadyS = readinessProbe.periodSeconds * readinessProbe.failureThreshold;
    assert.ok(unreadyS >= 30, 'longer than a hand-over, or the old Pod would be deleted in the middle of it');
  });
});

describe('deploy/kustomize', () => {
  for (const file of globSync('**/kustomization.yaml', { cwd: KUSTOMIZE })) {
    test(`${file} names files that are there, and changes what the base has`, () => {
      const folder = join(KUSTOMIZE, dirname(file));
      const [document] = documentsOf(readFileSync(join(KUSTOMIZE, file), 'utf8'));
      const { apiVersion, kind, resources, images = [], patches = [], ...others } = document;
      assert.deepEqual([apiVersion, kind, others], ['kustomize.config.k8s.io/v1beta1', 'Kustomization', {}]);
      for (const resource of resources) assert.ok(existsSync(join(folder, resource)), resource);
      const [container] = deployedObjects().get('DaemonSet').spec.template.spec.containers;
      for (const { name } of images) assert.equal(name, container.image.split(':')[0]);
      for (const { patch } of patches) {
        const [{ kind, metadata, spec }] = documentsOf(patch);
        const { name, namespace } = deployedObjects().get(kind).metadata;
        assert.deepEqual(metadata, { name, namespace });
        const [patched] = spec.template.spec.containers;
        assert.equal(patched.name, container.name);
        const names = container.env.map((variable: { name: string }) => variable.name);
        for (const variable of patched.env) assert.ok(names.includes(variable.name), variable.name);
      }
    });
  }
});

describe('deploy/kube-userspace-proxy.service', () => {
  const unit = parseUnit(read('deploy/kube-userspace-proxy.service'));
  const service = unit.get('Service')!;

  test('the command line is accepted with what the file of flags holds, and takes a kubeconfig', () => {
    const ours = '--state-dir=/var/lib/kube-userspace-proxy';
    assert.equal(service.get('ExecStart'), `/usr/sbin/kube-userspace-proxy ${ours} $OPTIONS`);
    assert.equal(service.get('EnvironmentFile'), '/etc/default/kube-userspace-proxy');
    const defaults = read('packaging/kube-userspace-proxy.default');
    const [options, ...others] = defaults.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
    assert.deepEqual(others, []);
    const flags = /^OPTIONS="(.*)"$/.exec(options!)?.[1] ?? '';
    const { source, state } = configOf([ours, ...flags.split(' ')]);
    assert.ok(source.kind === 'kubernetes' && source.kubeconfig !== undefined);
    assert.equal(state?.directory, `/var/lib/${service.get('StateDirectory')}`);
  });

  test('it is confined, but can do what it needs', () => {
    const capabilities = CAPABILITIES.map((name) => `CAP_${name}`).join(' ');
    for (const [setting, value] of [
      ['RuntimeDirectory', DEFAULT_CONTROL_SOCKET.split('/')[2]],
      ['RuntimeDirectoryMode', '0700'],
      ['StateDirectoryMode', '0700'],
      ['ProtectSystem', 'strict'],
      // For /run/xtables.lock, which may not exist yet.
      ['ReadWritePaths', '/run'],
      ['AmbientCapabilities', capabilities],
      ['CapabilityBoundingSet', capabilities],
      ['NoNewPrivileges', 'yes'],
      ['ExecReload', "/bin/sh -c 'kill -HUP $MAINPID'"],
      ['Type', 'notify'],
      ['Restart', 'always'],
    ] as const) {
      assert.equal(service.get(setting), value, setting);
    }
    for (const family of ['AF_UNIX', 'AF_INET', 'AF_INET6', 'AF_NETLINK']) {
      assert.match(service.get('RestrictAddressFamilies')!, new RegExp(`\\b${family}\\b`));
    }
    for (const setting of [
      ...['PrivateNetwork', 'PrivateUsers', 'ProcSubset', 'ProtectKernelTunables'],
      // V8 compiles at run time.
      'MemoryDenyWriteExecute',
      // The default lets only the main process notify systemd, which the successor is by then.
      'NotifyAccess',
    ]) {
      assert.ok(!service.has(setting), setting);
    }
    assert.ok(Number(service.get('LimitNOFILE')) >= 65_536);
    assert.equal(unit.get('Unit')!.get('StartLimitIntervalSec'), '0');
    assert.equal(unit.get('Install')!.get('WantedBy'), 'multi-user.target');
  });

  test('systemd accepts it', { skip: !existsSync(ANALYZE) && `there is no ${ANALYZE}` }, (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'unit-'));
    t.after(() => rmSync(folder, { recursive: true }));
    const file = join(folder, 'kube-userspace-proxy.service');
    // systemd looks for the program, and the package may not be installed here.
    writeFileSync(file, read('deploy/kube-userspace-proxy.service').replace('/usr/sbin/', '/bin/true '));
    const { status, stderr } = spawnSync(ANALYZE, ['verify', '--man=no', file], { encoding: 'utf8' });
    assert.equal(status, 0, stderr);
    assert.doesNotMatch(stderr, /kube-userspace-proxy/);
  });

  test('the watchdog is fed often enough, and is not too short', () => {
    const seconds = Number(/^(\d+)s$/.exec(service.get('WatchdogSec') ?? '')?.[1]);
    const env = { WATCHDOG_USEC: String(seconds * 1e6), WATCHDOG_PID: '42' };
    assert.ok(watchdogPeriodMs(env, { pid: 42, isSuccessor: false })! <= (seconds * 1000) / 3);
    // A hand-over may stand still for 10 seconds, and an overloaded machine for longer.
    assert.ok(seconds >= 30, `${seconds}`);
  });
});

describe('Dockerfile', () => {
  const text = read('Dockerfile');

  test('it names the capabilities that the manifest asks for', () => {
    assert.deepEqual(
      [...text.matchAll(/--cap-add (\w+)/g)].map(([, name]) => name),
      CAPABILITIES,
    );
  });

  test('it installs what is below the program in the image of a release', () => {
    const [, packages] = /^PACKAGES='(.+)'$/m.exec(read('scripts/image-packages')) ?? [];
    assert.ok(packages !== undefined && text.includes(`--no-install-recommends ${packages} \\\n`), packages);
  });

  test('the program is process 1, and root', () => {
    assert.match(text, /^ENTRYPOINT \["\/usr\/local\/sbin\/kube-userspace-proxy"\]$/m);
    assert.doesNotMatch(text, /^(USER|CMD) /m);
  });
});

/** Sections of a unit file with their settings. Throws on what is neither a section, a setting nor a comment. */
function parseUnit(text: string): Map<string, Map<string, string>> {
  const sections = new Map<string, Map<string, string>>();
  let current: Map<string, string> | undefined;
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('#')) continue;
    const section = /^\[(\w+)\]$/.exec(line)?.[1];
    const setting = /^(\w+)=(.+)$/.exec(line);
    if (section !== undefined) {
      current = new Map();
      sections.set(section, current);
    } else if (setting !== null && current !== undefined) current.set(setting[1]!, setting[2]!);
    else throw new Error(`neither a section nor a setting: ${line}`);
  }
  return sections;
}
