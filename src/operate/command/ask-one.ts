import type { CommandName, Commands, Control } from '../control/protocol.ts';

/** Asks what is answered in one piece. */
export async function askOne<C extends CommandName>(
  control: Control,
  command: C,
  params: Commands[C]['params'],
): Promise<Commands[C]['piece']> {
  let answer: Commands[C]['piece'] | undefined;
  for await (const piece of control.ask(command, params)) answer = piece;
  if (answer === undefined) throw new Error('the proxy gave no answer');
  return answer;
}
