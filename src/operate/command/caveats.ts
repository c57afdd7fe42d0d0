import type { NodeView } from '../../model/view.ts';
import type { Terminal } from './command.ts';
import { shortDuration } from './format/duration.ts';
import { oneColumnEach } from './format/text.ts';

/** Says on stderr, where it is in no script's way, why what was printed may not be how things are. */
export function warnOfCaveats(node: NodeView, terminal: Pick<Terminal, 'err'>): void {
  for (const caveat of caveatsOf(node)) terminal.err(`Warning: ${caveat}.\n`);
}

export function caveatsOf({ api, families }: NodeView): string[] {
  const away =
    api === undefined || api.connected
      ? []
      : [`the API server has not been heard for ${shortDuration(api.staleForMs)}, so changes may be missing`];
  const rules = families.flatMap(({ family, lastSync }) => {
    if (lastSync === undefined) return [`the rules of ${family} have not been brought in line since the start`];
    return lastSync.err === undefined ? [] : [`the rules of ${family} do not follow: ${oneColumnEach(lastSync.err)}`];
  });
  return [...away, ...rules];
}
