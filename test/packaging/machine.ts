import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { type Namespace, output, type RunResult, runCommand } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';
import { type Chroot, makeChroot } from './chroot.ts';

export interface MachineOptions {
  /** The network that it is on. */
  readonly namespace: Namespace;
  /** Directories of outside, and where they are seen. */
  readonly binds: Readonly<Record<string, string>>;
}

/** A small Debian that has been booted: systemd is its process 1. Needs Debian's `systemd-container`. */
export class Machine {
  readonly #chroot: Chroot;
  readonly #container: ChildProcess;

  private constructor(chroot: Chroot, container: ChildProcess) {
    this.#chroot = chroot;
    this.#container = container;
  }

  /** Where its files are, from outside. */
  get path(): string {
    return this.#chroot.path;
  }

  /** Rejects with what systemd said when it does not come up. */
  static async boot(packages: readonly string[], { namespace, binds }: MachineOptions): Promise<Machine> {
    const chroot = makeChroot([...packages, 'systemd', 'systemd-sysv']);
    const container = spawn(
      'systemd-nspawn',
      [
        '--quiet',
        '--register=no',
        '--keep-unit',
        '--capability=all',
        `--directory=${chroot.path}`,
        `--network-namespace-path=/run/netns/${namespace.name}`,
        ...Object.entries(binds).map(([outside, inside]) => `--bind=${outside}:${inside}`),
        '--boot',
      ],
      { stdio: ['ignore', 'pipe', 'pipe'] },
    );
    let said = '';
    for (const stream of [container.stdout, container.stderr]) stream.on('data', (text) => (said += text));
    container.on('error', (error) => (said += error.message));
    const machine = new Machine(chroot, container);
    try {
      await waitFor(
        'systemd to be up',
        async () => {
          if (container.exitCode !== null || container.pid === undefined) throw new Error('systemd-nspawn has ended');
          return (await machine.try('systemctl', 'is-active', 'basic.target')).stdout === 'active\n';
        },
        300_000,
      );
      return machine;
    } catch (error) {
      if (container.exitCode === null && container.pid !== undefined) await machine.stop();
      else chroot.remove();
      throw new Error(`${(error as Error).message}: ${said.slice(-2000)}`);
    }
  }

  /** Standard output of a command that must succeed. */
  run(...argv: readonly string[]): Promise<string> {
    return output(this.#inside(argv), { timeoutMs: 300_000 });
  }

  try(...argv: readonly string[]): Promise<RunResult> {
    return runCommand(this.#inside(argv), { timeoutMs: 300_000 });
  }

  async stop(): Promise<void> {
    const gone = once(this.#container, 'exit');
    // With it, the kernel ends all others. It would outlive systemd-nspawn.
    const leader = this.#leader();
    if (leader === undefined) this.#container.kill('SIGKILL');
    else process.kill(leader, 'SIGKILL');
    await gone;
    this.#chroot.remove();
  }

  /** Process 1. While the container is set up, it is another process for a moment. */
  #leader(): number | undefined {
    const { pid } = this.#container;
    return Number(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ')[0]) || undefined;
  }

  #inside(argv: readonly string[]): string[] {
    const namespaces = ['--mount', '--uts', '--ipc', '--net', '--pid', '--cgroup'];
    return ['nsenter', `--target=${this.#leader()}`, ...namespaces, ...argv];
  }
}
