import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, mkdirSync, openSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Namespace } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';
import { PAUSE } from './images.ts';

export type Network = 'bridge' | 'unnumbered';

export interface NodeOptions {
  readonly name: string;
  readonly number: number;
  /** Made already, with its links. */
  readonly namespace: Namespace;
  readonly network: Network;
  /** For its files and logs. */
  readonly directory: string;
  readonly bin: string;
  readonly images: string;
  readonly kubeconfig: string;
  readonly addresses: readonly [string, string];
  readonly podRanges: readonly [string, string];
  readonly dns: { readonly cluster: string; readonly upstream: string };
}

const PLUGINS = '/usr/lib/cni';
const CGROUPS = '/sys/fs/cgroup';
/** What each node has for itself, at the place where everybody looks for it. */
const PRIVATE = ['/etc/cni/net.d', '/var/lib/cni', '/var/lib/containerd', '/var/lib/kubelet', '/var/log/pods'];

/** A node of a cluster: containerd and kubelet in network, mount, UTS and PID namespaces of their own. */
export class ClusterNode {
  readonly name: string;
  readonly #options: NodeOptions;
  readonly #process: ChildProcess;
  readonly #pid: number;

  private constructor(options: NodeOptions, process: ChildProcess, pid: number) {
    this.name = options.name;
    this.#options = options;
    this.#process = process;
    this.#pid = pid;
  }

  static async start(options: NodeOptions): Promise<ClusterNode> {
    makeCgroups(options.name);
    writeFiles(options);
    // Not `ip netns exec`, which mounts a /sys without the control groups.
    const unshare = ['unshare', '--mount', '--uts', '--pid', '--fork', '--mount-proc', '--propagation', 'private'];
    const argv = [`--net=/run/netns/${options.namespace.name}`, ...unshare, 'sh', '-eu', '-c', startScript(options)];
    const child = start(join(options.directory, 'node.log'), ['nsenter', ...argv]);
    const children = `/proc/${child.pid}/task/${child.pid}/children`;
    const pid = await waitFor(
      'the first process of the node',
      () => Number(readFileSync(children, 'utf8')) || undefined,
    );
    return new ClusterNode(options, child, pid);
  }

  /** Starts a program in all namespaces of this node. */
  spawn(log: string, argv: readonly string[]): ChildProcess {
    const all = ['--net', '--mount', '--uts', '--pid'];
    return start(join(this.#options.directory, log), ['nsenter', '--target', String(this.#pid), ...all, ...argv]);
  }

  /** Everything in it ends with its first process. */
  async remove(): Promise<void> {
    this.#process.kill('SIGKILL');
    try {
      process.kill(this.#pid, 'SIGKILL');
    } catch {
      // It has ended.
    }
    await removeCgroups(this.name);
  }
}

function start(log: string, argv: readonly string[]): ChildProcess {
  const file = openSync(log, 'a');
  const [program, ...args] = argv;
  const child = spawn(program!, args, { stdio: ['ignore', file, file] });
  closeSync(file);
  return child;
}

function startScript({ name, directory, bin, images, kubeconfig, addresses, number }: NodeOptions): string {
  const socket = '/run/containerd/containerd.sock';
  const labels = `topology.kubernetes.io/zone=zone-${number},topology.kubernetes.io/region=region`;
  return `
    export PATH=${bin}:$PATH
    hostname ${name}
    mount -t tmpfs tmpfs /run
    mkdir -p /run/lock /run/netns
    for place in ${PRIVATE.join(' ')}; do
      mkdir -p $place ${directory}/files$place
      mount --bind ${directory}/files$place $place
    done
    cp ${directory}/10-pods.conflist /etc/cni/net.d/
    mount --make-rshared /
    containerd --config ${directory}/containerd.toml >>${directory}/containerd.log 2>&1 &
    until ctr --address ${socket} version >/dev/null 2>&1; do sleep 0.2; done
    ctr --address ${socket} --namespace k8s.io images import ${images}
    kubelet --config ${directory}/kubelet.yaml --kubeconfig ${kubeconfig} --hostname-override ${name} \\
      --node-ip ${addresses} --node-labels ${labels} >>${directory}/kubelet.log 2>&1 &
    while true; do wait; sleep 1; done
  `;
}

function writeFiles({ name, network, directory, podRanges, dns }: NodeOptions): void {
  mkdirSync(directory, { recursive: true });
  const write = (file: string, content: string | object) =>
    writeFileSync(join(directory, file), typeof content === 'string' ? content : JSON.stringify(content));
  const ipam = {
    type: 'host-local',
    ranges: podRanges.map((subnet) => [{ subnet }]),
    routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }],
  };
  const bridge = { type: 'bridge', bridge: 'cni0', isGateway: true, hairpinMode: true, ipam };
  const first = network === 'bridge' ? bridge : { type: 'unnumbered', ipam };
  const plugins = [first, { type: 'portmap', capabilities: { portMappings: true } }];
  write('10-pods.conflist', { cniVersion: '1.0.0', name: 'pods', plugins });
  mkdirSync(join(directory, 'cni'), { recursive: true });
  const plugin = new URL('unnumbered.ts', import.meta.url).pathname;
  writeFileSync(join(directory, 'cni/unnumbered'), `#!/bin/sh\nexec ${process.execPath} ${plugin}\n`, { mode: 0o755 });
  write(
    'containerd.toml',
    `version = 3
[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "${PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["${PLUGINS}", "${join(directory, 'cni')}"]
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
`,
  );
  write('resolv.conf', `nameserver ${dns.upstream}\n`);
  // JSON is YAML.
  write('kubelet.yaml', {
    apiVersion: 'kubelet.config.k8s.io/v1beta1',
    kind: 'KubeletConfiguration',
    // Nobody else reaches this network.
    authentication: { anonymous: { enabled: true }, webhook: { enabled: false } },
    authorization: { mode: 'AlwaysAllow' },
    cgroupDriver: 'cgroupfs',
    cgroupRoot: `/${name}`,
    clusterDNS: [dns.cluster],
    clusterDomain: 'cluster.local',
    containerRuntimeEndpoint: 'unix:///run/containerd/containerd.sock',
    enforceNodeAllocatable: [],
    evictionHard: { 'memory.available': '100Mi', 'nodefs.available': '1%', 'imagefs.available': '1%' },
    // Machines without control groups of version 2 will do.
    failCgroupV1: false,
    failSwapOn: false,
    imageGCHighThresholdPercent: 100,
    maxPods: 200,
    resolvConf: join(directory, 'resolv.conf'),
  });
}

/** Kubelet wants its own to be there, in every controller of version 1. */
function makeCgroups(name: string): void {
  for (const folder of cgroupFolders(name)) {
    mkdirSync(folder, { recursive: true });
    if (!folder.includes('/cpuset/')) continue;
    for (const file of ['cpuset.cpus', 'cpuset.mems']) {
      writeFileSync(join(folder, file), readFileSync(join(folder, '..', file)));
    }
  }
}

async function removeCgroups(name: string): Promise<void> {
  // Where there are both versions, runc makes groups in the hierarchy of the other, too.
  for (const folder of [...cgroupFolders(name), join(CGROUPS, 'unified', name)]) {
    await waitFor(`${folder} is empty`, () => {
      try {
        removeTree(folder);
        return true;
      } catch (error) {
        return (error as NodeJS.ErrnoException).code === 'ENOENT';
      }
    });
  }
}

/** The files in it are the kernel's, and go with it. */
function removeTree(folder: string): void {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    if (entry.isDirectory()) removeTree(join(folder, entry.name));
  }
  rmdirSync(folder);
}

function cgroupFolders(name: string): string[] {
  const isUnified = readdirSync(CGROUPS).includes('cgroup.controllers');
  const controllers = isUnified ? [''] : readdirSync(CGROUPS).filter((controller) => controller !== 'unified');
  return controllers.map((controller) => join(CGROUPS, controller, name));
}
