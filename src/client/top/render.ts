import { ENDPOINT_COLUMNS, SERVICE_COLUMNS, shownColumns } from './columns.ts';
import { type Frame, type Glyphs, type Line, line, type Size, span } from './frame.ts';
import { headerLines } from './header.ts';
import { HELP_LINES } from './help.ts';
import type { EndpointRow, Look, ServiceRow } from './look.ts';
import type { Shown, State } from './state.ts';
import { statusLine } from './status-line.ts';
import { tableLines } from './table.ts';

/** Everything that a frame is made of. */
export interface Scene {
  readonly state: State;
  readonly look: Look;
  /** Filtered and sorted. */
  readonly services: readonly ServiceRow[];
  readonly endpoints: readonly EndpointRow[];
  /** Why there is no newer look. */
  readonly problem: string | undefined;
}

/** One screen. */
export function render(scene: Scene, size: Size, glyphs: Glyphs): Frame {
  const { state } = scene;
  const { columns, rows } = size;
  const blank = line(columns, [], glyphs);
  const top = topLines(scene, size, glyphs);
  const height = tableHeight(size, top.length);
  const body = state.isHelping
    ? HELP_LINES.map((text) => line(columns, [span(text)], glyphs))
    : bodyLines(scene, { columns, rows: height }, glyphs);
  const filled = [...body, ...Array.from({ length: Math.max(0, height + 1 - body.length) }, () => blank)];
  return [...top, ...filled.slice(0, height + 1), keysLine(state, columns, glyphs)].slice(0, rows);
}

/** What the keys act on. */
export function shownOf(scene: Scene, size: Size, glyphs: Glyphs): Shown {
  const height = tableHeight(size, topLines(scene, size, glyphs).length);
  const { endpoints, services } = scene;
  if (scene.state.opened !== undefined) {
    return { rows: endpoints, height, columns: shownColumns(ENDPOINT_COLUMNS, endpoints, size.columns).map(titleOf) };
  }
  return { rows: services, height, columns: shownColumns(SERVICE_COLUMNS, services, size.columns).map(titleOf) };
}

function topLines(scene: Scene, size: Size, glyphs: Glyphs): Line[] {
  return [
    ...headerLines(scene.look, scene.problem !== undefined, size, glyphs),
    statusLine(scene, size.columns, glyphs),
  ];
}

/** Beside the rows there is a line of titles, and one of keys. */
function tableHeight({ rows }: Size, topLines: number): number {
  return Math.max(1, rows - topLines - 2);
}

function bodyLines({ state, services, endpoints }: Scene, size: Size, glyphs: Glyphs): Line[] {
  return state.opened === undefined
    ? tableLines(services, SERVICE_COLUMNS, state.services, size, glyphs)
    : tableLines(endpoints, ENDPOINT_COLUMNS, state.endpoints, size, glyphs);
}

function keysLine({ opened, isHelping, isTyping, delayMs }: State, columns: number, glyphs: Glyphs): Line {
  const keys = isTyping
    ? 'Enter keep  Esc drop the filter'
    : isHelping
      ? 'any key goes back  q quit'
      : opened === undefined
        ? 'q quit  ? help  Enter endpoints  / filter  p pause  <> sort  r reverse'
        : 'q quit  ? help  Esc back  p pause  <> sort  r reverse';
  return line(columns, [span(`${keys}  `, 'faint'), span(`every ${delayMs / 1_000}s`, 'faint')], glyphs);
}

function titleOf({ title }: { readonly title: string }): string {
  return title;
}
