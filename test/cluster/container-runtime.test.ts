import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { createClient } from '@connectrpc/connect';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { ContainerRuntime } from '../../src/cri/container-runtime.ts';
import { runtimeService } from '../../src/cri/messages.ts';
import { waitFor } from '../netns/wait.ts';

/* A real containerd, in a network namespace of its own, with a sandbox of what Debian has: there is no registry. */

const IMAGE = 'test/pause:1';
const NETWORK_NAMESPACE = `containerd-${process.pid}`;
/** The kubelet's part, of the same description as `src/cri/messages.ts`. */
const KUBELET = {
  messages: {
    PodSandboxMetadata: [
      ['name', 1, 'string'],
      ['uid', 2, 'string'],
      ['namespace', 3, 'string'],
    ],
    RunPodSandboxRequest: [['config', 1, 'message PodSandboxConfig']],
    PodSandboxConfig: [
      ['metadata', 1, 'message PodSandboxMetadata'],
      ['log_directory', 3, 'string'],
    ],
    RunPodSandboxResponse: [['pod_sandbox_id', 1, 'string']],
    StopPodSandboxRequest: [['pod_sandbox_id', 1, 'string']],
    StopPodSandboxResponse: [],
  },
  methods: ['RunPodSandbox', 'StopPodSandbox'],
} as const;

type Call = (request: object) => Promise<{ readonly podSandboxId: string }>;

describe('a real containerd', () => {
  let folder: string;
  let socket: string;
  let containerd: ChildProcess;
  let kubelet: { readonly runPodSandbox: Call; readonly stopPodSandbox: Call };
  const path = (name: string) => join(folder, name);

  before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'containerd-'));
    socket = path('containerd.sock');
    configure();
    execFileSync('ip', ['netns', 'add', NETWORK_NAMESPACE]);
    const log = openSync(path('log'), 'w');
    // Not by `ip netns exec`, which hides the cgroups that runc needs.
    const into = `--net=/run/netns/${NETWORK_NAMESPACE}`;
    containerd = spawn('nsenter', [into, 'containerd', '--config', path('config.toml')], {
      stdio: ['ignore', log, log],
    });
    const ctr = (...args: readonly string[]) => execFileSync('ctr', ['-a', socket, '-n', 'k8s.io', ...args]);
    const image = makeImage();
    let problem = '';
    await waitFor('containerd takes the image', () => {
      try {
        return ctr('images', 'import', image);
      } catch (error) {
        problem = (error as Error).message;
        return undefined;
      }
    }).catch((error: Error) => {
      throw new Error(`${error.message}: ${problem}\n${readFileSync(path('log'), 'utf8').slice(-2_000)}`);
    });
    const transport = createGrpcTransport({
      baseUrl: 'http://localhost',
      nodeOptions: { createConnection: () => connect(socket) },
    });
    kubelet = createClient(runtimeService(KUBELET), transport) as unknown as typeof kubelet;
  });

  after(async () => {
    // With their network namespaces.
    for (const sandbox of sandboxes) await kubelet.stopPodSandbox(sandbox);
    containerd.kill('SIGKILL');
    execFileSync('sh', ['-c', `ip netns pids ${NETWORK_NAMESPACE} | xargs -r kill -9`]);
    execFileSync('ip', ['netns', 'del', NETWORK_NAMESPACE]);
    execFileSync('sh', ['-c', `grep -o ' ${folder}/[^ ]*' /proc/mounts | sort -r | xargs -r umount --lazy`]);
    rmSync(folder, { recursive: true, force: true });
  });

  function configure(): void {
    writeFileSync(
      path('config.toml'),
      `version = 2
root = "${path('root')}"
state = "${path('state')}"
[grpc]
  address = "${socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "${IMAGE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "${path('net.d')}"
`,
    );
    mkdirSync(path('net.d'));
    const ipam = { type: 'host-local', subnet: '10.250.0.0/24', dataDir: path('ipam') };
    const network = { cniVersion: '0.4.0', name: 'test', plugins: [{ type: 'ptp', ipam }] };
    writeFileSync(path('net.d/10-test.conflist'), JSON.stringify(network));
  }

  /** Of `sleep`. Gives the archive. */
  function makeImage(): string {
    const layer = path('layer');
    const libraries = execFileSync('ldd', ['/bin/sleep'], { encoding: 'utf8' }).match(/\/lib\S+/g) ?? [];
    for (const file of ['/bin/sleep', ...libraries]) {
      mkdirSync(dirname(join(layer, file)), { recursive: true });
      copyFileSync(file, join(layer, file));
    }
    const image = path('image');
    mkdirSync(image, { recursive: true });
    execFileSync('tar', ['-C', layer, '-cf', join(image, 'layer.tar'), '.']);
    const digest = createHash('sha256')
      .update(readFileSync(join(image, 'layer.tar')))
      .digest('hex');
    const config = {
      architecture: process.arch === 'x64' ? 'amd64' : process.arch,
      os: 'linux',
      config: { Entrypoint: ['/bin/sleep', 'infinity'] },
      rootfs: { type: 'layers', diff_ids: [`sha256:${digest}`] },
    };
    writeFileSync(join(image, 'config.json'), JSON.stringify(config));
    const manifest = [{ Config: 'config.json', RepoTags: [IMAGE], Layers: ['layer.tar'] }];
    writeFileSync(join(image, 'manifest.json'), JSON.stringify(manifest));
    execFileSync('tar', ['-C', image, '-cf', path('image.tar'), '.']);
    return path('image.tar');
  }

  const sandboxes: { readonly podSandboxId: string }[] = [];
  const run = async (name: string, uid: string) => {
    const metadata = { name, namespace: 'shop', uid };
    const sandbox = await kubelet.runPodSandbox({ config: { metadata, logDirectory: folder } });
    sandboxes.push(sandbox);
    return sandbox;
  };

  test('says where the pods are that run, also when one of them is made anew', async () => {
    const runtime = new ContainerRuntime(socket);
    const asked = new Set(['shop/web', 'shop/other', 'shop/none'] as const);
    const first = await run('web', 'a');
    await run('other', 'b');
    const before = await runtime.addressesOf(asked);
    assert.deepEqual([...before.keys()].sort(), ['shop/other', 'shop/web']);
    for (const addresses of before.values()) assert.match(addresses.join(), /^10\.250\.0\.\d+$/);

    await kubelet.stopPodSandbox(first);
    assert.deepEqual([...(await runtime.addressesOf(asked)).keys()], ['shop/other']);
    await run('web', 'c');
    const now = await runtime.addressesOf(asked);
    assert.notDeepEqual(now.get('shop/web'), before.get('shop/web'));
    assert.deepEqual(now.get('shop/other'), before.get('shop/other'));
  });
});
