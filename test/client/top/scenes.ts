import type { Frame } from '../../../src/client/top/frame.ts';
import { type Look, Looker, type OpenKey } from '../../../src/client/top/look.ts';
import type { Scene } from '../../../src/client/top/render.ts';
import { initialState, type State } from '../../../src/client/top/state.ts';
import type { View } from '../../../src/contracts/view.ts';
import { FakeView } from '../../fakes/fake-view.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { controlOf } from '../control-of.ts';

export const WEB: OpenKey = { key: 'default/web:http IPv4', namespace: 'default', service: 'web' };

export async function lookAt(view: View = new FakeView(), open?: OpenKey): Promise<Look> {
  return await new Looker(controlOf(view), new ManualClock()).look(open);
}

export function sceneOf(look: Look, changes: Partial<State> = {}, problem?: string): Scene {
  return {
    state: { ...initialState(2_000), ...changes },
    look,
    services: look.services,
    endpoints: look.opened?.endpoints ?? [],
    problem,
  };
}

/** Without its styles. */
export function textOf(frame: Frame): string[] {
  return frame.map((line) => line.map(({ text }) => text).join(''));
}
