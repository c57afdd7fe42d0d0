import { createSocket } from 'node:dgram';
import { connect } from 'node:net';

/** The result of one attempt: the name of the backend, an error code, `closed` without an answer, or `timeout`. */
export type Outcome = string;

export interface Attempt {
  readonly protocol: 'tcp' | 'udp';
  readonly host: string;
  readonly port: number;
}

/** Makes all attempts at once. UDP sockets are connected, because only these receive refusals. */
export function outcomes(args: { attempts: readonly Attempt[]; timeoutMs: number }): Promise<Outcome[]> {
  return Promise.all(
    args.attempts.map((attempt) => (attempt.protocol === 'tcp' ? overTcp : overUdp)(attempt, args.timeoutMs)),
  );
}

function overTcp({ host, port }: Attempt, timeoutMs: number): Promise<Outcome> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, timeout: timeoutMs });
    const settle = (outcome: Outcome) => {
      socket.destroy();
      resolve(outcome);
    };
    socket.on('connect', () => socket.write('GET / HTTP/1.1\r\nHost: test\r\n\r\n'));
    socket.on('data', (answer) => settle(answer.toString().split('\r\n\r\n').at(-1)?.trim() ?? ''));
    socket.on('error', (error: NodeJS.ErrnoException) => settle(error.code ?? error.message));
    socket.on('timeout', () => settle('timeout'));
    socket.on('close', () => settle('closed'));
  });
}

function overUdp({ host, port }: Attempt, timeoutMs: number): Promise<Outcome> {
  return new Promise((resolve) => {
    const socket = createSocket(host.includes(':') ? 'udp6' : 'udp4');
    const settle = (outcome: Outcome) => {
      clearTimeout(timer);
      socket.close();
      resolve(outcome);
    };
    const timer = setTimeout(() => settle('timeout'), timeoutMs);
    socket.on('message', (answer) => settle(answer.toString().split(' ')[0] ?? ''));
    socket.on('error', (error: NodeJS.ErrnoException) => settle(error.code ?? error.message));
    socket.connect(port, host, () => socket.send('who'));
  });
}
