import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { until } from './until.ts';

/** Node has no sockets of this kind. Says when it listens, then each datagram in a line. */
const RECEIVER = `
  use Socket; $| = 1;
  socket(my $socket, AF_UNIX, SOCK_DGRAM, 0) or die; my $path = shift; $path =~ s/^@/\\0/;
  bind($socket, pack_sockaddr_un($path)) or die "bind: $!"; print "listening\\n";
  while (defined recv($socket, my $text, 4096, 0)) { $text =~ s/\\n/ /g; print "$text\\n"; }
`;

/** Stands in for systemd, at a path or (`@name`) at an abstract one. */
export class NotifySocket {
  readonly path: string;
  /** The datagrams received, with spaces instead of line feeds. */
  readonly lines: string[] = [];
  readonly #child: ChildProcess;

  private constructor(path: string, child: ChildProcess) {
    this.path = path;
    this.#child = child;
  }

  static async listen(path: string): Promise<NotifySocket> {
    const child = spawn('perl', ['-e', RECEIVER, path], { stdio: ['ignore', 'pipe', 'inherit'] });
    const socket = new NotifySocket(path, child);
    let rest = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      const lines = (rest + text).split('\n');
      rest = lines.pop() ?? '';
      socket.lines.push(...lines);
    });
    while (socket.lines.length === 0) await once(child.stdout, 'data');
    socket.lines.shift();
    return socket;
  }

  /** It is busy, and reads nothing. */
  async pause(): Promise<void> {
    this.#child.kill('SIGSTOP');
    // What it was about to read it still reads.
    await until('it to stop', () => / T /.test(readFileSync(`/proc/${this.#child.pid}/stat`, 'utf8')));
  }

  resume(): void {
    this.#child.kill('SIGCONT');
  }

  close(): void {
    this.#child.kill('SIGKILL');
  }
}
