import type { Question, View } from '../../src/model/view.ts';
import type { CommandName, Commands, Control } from '../../src/operate/control/protocol.ts';

/** A control that answers from a view in this process, in pieces of `size` rows. */
export function controlOf(view: View, size = 100): Control {
  return {
    ask: <C extends CommandName>(command: C, params: Commands[C]['params']) =>
      answers(view, command, params, size) as AsyncIterable<Commands[C]['piece']>,
  };
}

async function* answers(view: View, command: CommandName, params: object, size: number): AsyncIterable<unknown> {
  switch (command) {
    case 'node':
      yield await view.node();
      return;
    case 'services':
      yield* inPieces(view.services(params), size);
      return;
    case 'connections':
      yield* view.connections(params);
      return;
    case 'explain':
      yield await view.explain(params as Question);
      return;
    default:
      throw new Error(`${command} is not answered here`);
  }
}

function* inPieces<T>(rows: Iterable<T>, size: number): Iterable<T[]> {
  let piece: T[] = [];
  for (const row of rows) {
    piece.push(row);
    if (piece.length < size) continue;
    yield piece;
    piece = [];
  }
  if (piece.length > 0) yield piece;
}
