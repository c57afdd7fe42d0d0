import { once } from 'node:events';
import { connect } from 'node:net';
import { request, type Target } from './clients.ts';

/**
 * An attempt that meets no rule yet is lost without a word, so each has a connection of its own and none is waited for.
 */
const ATTEMPT_MS = 2_000;

/**
 * Sends requests `everyMs` apart until a backend (with `name`: this backend) answers. Returns the time of the answer,
 * in milliseconds since 1970.
 */
export function untilServed(
  args: Target & { everyMs: number; timeoutMs: number; name?: string },
): Promise<{ wallMs: number }> {
  const { everyMs, timeoutMs, name: wanted, ...target } = args;
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearInterval(attempts);
      clearTimeout(deadline);
    };
    const attempt = () => {
      request({ ...target, timeoutMs: ATTEMPT_MS }).then(
        ({ name }) => {
          if (wanted !== undefined && name !== wanted) return;
          stop();
          resolve({ wallMs: performance.timeOrigin + performance.now() });
        },
        () => {},
      );
    };
    const attempts = setInterval(attempt, everyMs);
    const deadline = setTimeout(() => {
      stop();
      reject(
        new Error(`${target.host}:${target.port} was not served${wanted ? ` by ${wanted}` : ''} in ${timeoutMs} ms`),
      );
    }, timeoutMs);
    attempt();
  });
}

/** Milliseconds that each of `count` connections to each target took; the targets take turns. */
export async function connectTimes(args: { targets: readonly Target[]; count: number }): Promise<number[][]> {
  const times: number[][] = args.targets.map(() => []);
  for (let round = 0; round < args.count; round++) {
    for (const [index, { host, port }] of args.targets.entries()) {
      const begun = performance.now();
      const socket = connect({ host, port });
      await once(socket, 'connect');
      times[index]?.push(performance.now() - begun);
      socket.destroy();
    }
  }
  return times;
}
