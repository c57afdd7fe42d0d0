import { messageOf } from '../util/text.ts';

/** Why the proxy's sockets cannot have this congestion control, and what to do; `undefined` when they can. */
export async function congestionControlProblem(name: string): Promise<string | undefined> {
  try {
    // Only here: koffi's addon may not load, and only who asks for it needs it.
    const { congestionControlProblem: problem } = await import('../sys/congestion-control.ts');
    return problem(name);
  } catch (error) {
    return `libc cannot be called here, which it needs (${messageOf(error)})`;
  }
}
