import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { output } from '../netns/topology.ts';

/** The pod has both addresses and answers at the first. */
export const POD_ADDRESSES = ['10.244.1.11', '10.244.1.12'] as const;
export const POD_PORT = 8080;

/** What the kernel of arm64 would find there, Debian's packages for cross compilers have here. */
const LIBRARIES = '/usr/aarch64-linux-gnu';
const QEMU = '/usr/bin/qemu-aarch64';

const ENVIRONMENT = { QEMU_LD_PREFIX: LIBRARIES };

/** The first bytes of a program for arm64, and which of their bits count; from the documentation of binfmt_misc. */
const ARM64_PROGRAM = {
  magic: '\\x7fELF\\x02\\x01\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00\\xb7\\x00',
  mask: '\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x00\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfe\\xff\\xff\\xff',
};

/**
 * A user namespace, so that the kernel starts programs for arm64 here and nowhere else: whoever registers them has that
 * alone (Linux 6.7 and later). P: a program keeps its name, by which ours tells its helper process.
 */
const NODE = `
set -eu
mount -t tmpfs tmpfs /run
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
echo ':arm64:M::${ARM64_PROGRAM.magic}:${ARM64_PROGRAM.mask}:${QEMU}:P' >/proc/sys/fs/binfmt_misc/register
unshare --net sleep infinity &
pod=$!
while [ "$(readlink /proc/$pod/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do :; done
ip link add name node0 type veth peer name pod0 netns $pod
ip link set lo up
ip link set node0 up
ip addr add 10.244.1.1/24 dev node0
ip route add default via 10.244.1.254
in_pod() { nsenter --net --target $pod "$@"; }
in_pod ip link set lo up
in_pod ip link set pod0 up
${POD_ADDRESSES.map((address) => `in_pod ip addr add ${address}/24 dev pod0`).join('\n')}
in_pod "$1" -e 'require("net")
  .createServer({ allowHalfOpen: true }, (socket) => socket.pipe(socket))
  .listen(${POD_PORT}, "${POD_ADDRESSES[0]}", () => console.log("ready"))' &
wait
`;

/** A program that runs there. */
export interface Emulated {
  readonly process: ChildProcess;
  /** What it has written. */
  log(): string;
  /** Asks it to end. */
  stop(): Promise<unknown>;
}

/** As much of a node as one needs to run a program for arm64 on it: a network, a pod, and iptables of this machine. */
export class Arm64Node {
  readonly #unshare: ChildProcess;

  private constructor(unshare: ChildProcess) {
    this.#unshare = unshare;
  }

  /** Why there can be none here. */
  static problem(): string | undefined {
    if (process.arch !== 'x64') return 'this machine has the libraries of another emulation, or needs none';
    if (spawnSync(QEMU, ['--version']).status !== 0) return 'qemu-user is missing; scripts/test installs it';
    const mounts = 'mount -t binfmt_misc none /proc/sys/fs/binfmt_misc';
    const own = ['--user', '--map-root-user', '--mount', 'sh', '-c', mounts];
    const { status, stderr } = spawnSync('unshare', own, { encoding: 'utf8' });
    return status === 0 ? undefined : `this kernel emulates machines for all or for none: ${stderr.trim()}`;
  }

  static async boot(): Promise<Arm64Node> {
    const own = ['--user', '--map-root-user', '--net', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc'];
    const unshare = spawn('unshare', [...own, 'sh', '-c', NODE, 'sh', process.execPath], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const node = new Arm64Node(unshare);
    for await (const line of createInterface(unshare.stdout)) if (line === 'ready') return node;
    throw new Error('the node for programs of arm64 could not be set up; see above');
  }

  run(...argv: readonly string[]): Promise<string> {
    return output(this.#command(argv), { env: ENVIRONMENT });
  }

  start(...argv: readonly string[]): Emulated {
    const named = ['sh', '-c', 'echo $$ >/run/started; exec "$@"', 'sh', ...argv];
    const [file, ...args] = this.#command(named);
    const child = spawn(file!, args, { env: { ...process.env, ...ENVIRONMENT }, stdio: ['ignore', 'pipe', 'pipe'] });
    let log = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (log += data));
    return {
      process: child,
      log: () => log,
      // The child is nsenter, which waits for the program.
      stop: () => this.run('sh', '-c', 'kill "$(cat /run/started)"'),
    };
  }

  async stop(): Promise<void> {
    const gone = once(this.#unshare, 'exit');
    this.#unshare.kill('SIGKILL');
    await gone;
  }

  #command(argv: readonly string[]): string[] {
    const { pid } = this.#unshare;
    const leader = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
    return ['nsenter', `--target=${leader}`, '--user', '--net', '--mount', '--pid', '--preserve-credentials', ...argv];
  }
}
