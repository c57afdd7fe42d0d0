import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Namespace, output, type RunResult, runCommand } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';
import { type Chroot, makeChroot } from './chroot.ts';

export const NAME = 'kube-userspace-proxy';
/** Long enough that a busy machine keeps nobody from feeding it. */
const WATCHDOG_S = 15;

/** A small booted Debian for the service: systemd is its process 1. Needs Debian's `systemd-container`. */
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

  /** On that network, with the Services at /srv/services. Rejects with what systemd said when it does not boot. */
  static async boot(namespace: Namespace, services: string): Promise<Machine> {
    const chroot = makeChroot(['dbus', 'iptables', 'libstdc++6', 'systemd', 'systemd-sysv']);
    const container = spawn(
      'systemd-nspawn',
      [
        '--quiet',
        '--register=no',
        '--keep-unit',
        '--capability=all',
        `--directory=${chroot.path}`,
        `--network-namespace-path=/run/netns/${namespace.name}`,
        `--bind=${services}:/srv/services`,
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

  /** Flags for the service, and a short watchdog, so that a missed sign of life shows within a test. */
  async configure(): Promise<void> {
    const flags = '--manifests=/srv/services --iptables-mode=nft -v=2';
    writeFileSync(join(this.path, 'etc/default', NAME), `OPTIONS="${flags}"\n`);
    const override = join(this.path, 'etc/systemd/system', `${NAME}.service.d`);
    mkdirSync(override);
    writeFileSync(join(override, 'watchdog.conf'), `[Service]\nWatchdogSec=${WATCHDOG_S}s\n`);
    await this.run('systemctl', 'daemon-reload');
  }

  /** Of the service's unit. */
  async property(name: string): Promise<string> {
    return (await this.run('systemctl', 'show', `--property=${name}`, '--value', NAME)).trim();
  }

  /** Resolves when the watchdog has been fed for longer than it would wait. */
  async watchdogIsFed(): Promise<void> {
    const fedAt = async () => Number(await this.property('WatchdogTimestampMonotonic'));
    const beganAt = await fedAt();
    await waitFor('the watchdog to be fed', async () => (await fedAt()) > beganAt + 2 * WATCHDOG_S * 1e6);
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
