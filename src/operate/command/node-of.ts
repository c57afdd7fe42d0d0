import type { NodeView } from '../../model/view.ts';
import type { Control } from '../control/protocol.ts';
import { askOne } from './ask-one.ts';

/** What the running program says of itself. */
export function nodeOf(control: Control): Promise<NodeView> {
  return askOne(control, 'node', {});
}
