import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { parseCommandLine } from '../../src/cli/command-line.ts';
import type { Config } from '../../src/cli/config.ts';
import { deployedArguments, deployedCapabilities, deployedObjects } from './manifest.ts';

const CAPABILITIES = ['NET_ADMIN', 'NET_RAW', 'NET_BIND_SERVICE'];

function configOf(argv: readonly string[]): Config {
  const line = parseCommandLine(argv);
  assert.equal(line.kind, 'run', 'text' in line ? line.text : '');
  return (line as Extract<typeof line, { kind: 'run' }>).config;
}

describe('deploy/daemonset.yaml', () => {
  const objects = deployedObjects();
  const pod = objects.get('DaemonSet').spec.template.spec;
  const [container, ...others] = pod.containers;

  test('it has three objects, and the right is that of kube-proxy, for its own account only', () => {
    assert.deepEqual([...objects.keys()], ['ServiceAccount', 'ClusterRoleBinding', 'DaemonSet']);
    const { roleRef, subjects } = objects.get('ClusterRoleBinding');
    assert.deepEqual(roleRef, {
      apiGroup: 'rbac.authorization.k8s.io',
      kind: 'ClusterRole',
      name: 'system:node-proxier',
    });
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
    assert.deepEqual(container.env, [{ name: 'NODE_NAME', valueFrom: { fieldRef: { fieldPath: 'spec.nodeName' } } }]);
  });

  test('it may do what it needs and no more', () => {
    const { capabilities, privileged, allowPrivilegeEscalation, readOnlyRootFilesystem } = container.securityContext;
    assert.deepEqual(capabilities, { drop: ['ALL'], add: CAPABILITIES });
    assert.deepEqual(deployedCapabilities(), CAPABILITIES);
    assert.equal(privileged, undefined);
    assert.equal(allowPrivilegeEscalation, false);
    assert.equal(readOnlyRootFilesystem, true);
    assert.equal(pod.hostPID ?? pod.hostIPC, undefined);
  });

  test('it runs on the network of every node, before anything else does', () => {
    assert.equal(pod.hostNetwork, true);
    assert.equal(pod.priorityClassName, 'system-node-critical');
    assert.deepEqual(pod.tolerations, [{ operator: 'Exists' }]);
    assert.equal(pod.enableServiceLinks, false);
  });

  test('it shares the lock of iptables with the node and only reads its modules', () => {
    const volumes = new Map(
      pod.volumes.map(({ name, hostPath }: { name: string; hostPath: object }) => [name, hostPath]),
    );
    assert.deepEqual(Object.fromEntries(volumes), {
      'xtables-lock': { path: '/run/xtables.lock', type: 'FileOrCreate' },
      'lib-modules': { path: '/lib/modules' },
    });
    assert.deepEqual(container.volumeMounts, [
      { name: 'xtables-lock', mountPath: '/run/xtables.lock' },
      { name: 'lib-modules', mountPath: '/lib/modules', readOnly: true },
    ]);
  });

  test('the probes ask where the program listens by default', () => {
    const { healthzAddress } = configOf(deployedArguments({ node: 'node-1' }));
    const { livenessProbe, readinessProbe } = container;
    assert.deepEqual(livenessProbe.httpGet, { path: '/livez', port: healthzAddress?.port });
    assert.deepEqual(readinessProbe.httpGet, { path: '/healthz', port: healthzAddress?.port });
  });
});

describe('deploy/kube-userspace-proxy.service', () => {
  const unit = parseUnit(readFileSync(new URL('../../deploy/kube-userspace-proxy.service', import.meta.url), 'utf8'));
  const service = unit.get('Service')!;

  test('the command line is accepted and takes a kubeconfig', () => {
    const [program, ...argv] = service.get('ExecStart')!.split(' ');
    assert.match(program!, /\/dist\/kube-userspace-proxy$/);
    const { source } = configOf(argv);
    assert.ok(source.kind === 'kubernetes' && source.kubeconfig !== undefined);
  });

  test('it may do what it needs and no more, and V8 may compile', () => {
    const names = CAPABILITIES.map((name) => `CAP_${name}`).join(' ');
    assert.equal(service.get('AmbientCapabilities'), names);
    assert.equal(service.get('CapabilityBoundingSet'), names);
    assert.equal(service.get('NoNewPrivileges'), 'yes');
    assert.ok(!service.has('MemoryDenyWriteExecute'));
  });

  test('a reload is what the program takes for an upgrade in place', () => {
    assert.equal(service.get('ExecReload'), '/bin/kill -HUP $MAINPID');
    // Only the main process may speak for the service, which the successor is by then.
    assert.ok(!service.has('NotifyAccess'));
  });

  test('it is always started again, with descriptors enough', () => {
    assert.equal(service.get('Type'), 'notify');
    assert.equal(service.get('Restart'), 'always');
    assert.equal(unit.get('Unit')!.get('StartLimitIntervalSec'), '0');
    assert.ok(Number(service.get('LimitNOFILE')) >= 65_536);
    assert.equal(unit.get('Install')!.get('WantedBy'), 'multi-user.target');
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
