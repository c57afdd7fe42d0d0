import type { OpenKey } from './look.ts';

/** What the user has chosen to see. */
export interface State {
  readonly services: TableState;
  readonly endpoints: TableState;
  /** Whose endpoints are on the screen; `undefined`: the Services are. */
  readonly opened: OpenKey | undefined;
  readonly isHelping: boolean;
  /** A part of the names that are shown. */
  readonly filter: string;
  /** Keys go into the filter. */
  readonly isTyping: boolean;
  readonly isPaused: boolean;
  /** Between two looks. */
  readonly delayMs: number;
  readonly isOver: boolean;
}

export interface TableState {
  /** A column's title. */
  readonly sortBy: string;
  /** Other than the column is sorted by itself. */
  readonly isReversed: boolean;
  /** A row's key. `undefined`: the first row, whichever that is. */
  readonly selected: string | undefined;
  /** The first row on the screen, as far as the selected one lets it be. */
  readonly offset: number;
}

/** The table that is on the screen. */
export interface Shown {
  /** In their order. */
  readonly rows: readonly ShownRow[];
  /** How many rows the screen has for them. */
  readonly height: number;
  /** The titles of its columns. */
  readonly columns: readonly string[];
}

export interface ShownRow {
  readonly key: string;
  /** Missing in a row that cannot be opened. */
  readonly namespace?: string;
  readonly service?: string;
}

export function initialState(delayMs: number): State {
  return {
    services: { sortBy: 'CONN/S', isReversed: false, selected: undefined, offset: 0 },
    endpoints: { sortBy: 'ENDPOINT', isReversed: false, selected: undefined, offset: 0 },
    opened: undefined,
    isHelping: false,
    filter: '',
    isTyping: false,
    isPaused: false,
    delayMs,
    isOver: false,
  };
}

/** The keys are those that `keys.ts` names. */
export function press(state: State, key: string, shown: Shown): State {
  if (key === 'ctrl-c') return { ...state, isOver: true };
  if (state.isTyping) return typed(state, key);
  if (state.isHelping) return key === 'q' ? { ...state, isOver: true } : { ...state, isHelping: false };
  const which = state.opened === undefined ? 'services' : 'endpoints';
  const table = moved(state[which], key, shown) ?? sorted(state[which], key, shown.columns);
  return table === undefined ? (COMMANDS.get(key)?.(state, shown) ?? state) : { ...state, [which]: table };
}

const DELAYS_MS = [500, 1_000, 2_000, 5_000, 10_000, 30_000];

const COMMANDS: ReadonlyMap<string, (state: State, shown: Shown) => State> = new Map([
  ['q', (state) => ({ ...state, isOver: true })],
  ['?', (state) => ({ ...state, isHelping: true })],
  ['h', (state) => ({ ...state, isHelping: true })],
  ['p', (state) => ({ ...state, isPaused: !state.isPaused })],
  [' ', (state) => ({ ...state, isPaused: !state.isPaused })],
  ['+', (state) => ({ ...state, delayMs: DELAYS_MS.find((delay) => delay > state.delayMs) ?? state.delayMs })],
  ['-', (state) => ({ ...state, delayMs: DELAYS_MS.findLast((delay) => delay < state.delayMs) ?? state.delayMs })],
  ['/', (state) => ({ ...state, opened: undefined, isTyping: true })],
  ['enter', opened],
  ['escape', back],
  ['backspace', back],
]);

function opened(state: State, { rows }: Shown): State {
  const row = rows[selectedIndex(state.services, rows)];
  if (row?.namespace === undefined || row.service === undefined) return state;
  const { key, namespace, service } = row;
  return {
    ...state,
    opened: { key, namespace, service },
    // It is where the user comes back to, wherever it is by then.
    services: { ...state.services, selected: key },
    endpoints: { ...state.endpoints, selected: undefined, offset: 0 },
  };
}

function back(state: State): State {
  return state.opened === undefined ? { ...state, filter: '' } : { ...state, opened: undefined };
}

/** Names have no blanks and nothing but ASCII. */
const TYPEABLE = /^[!-~]$/;

function typed(state: State, key: string): State {
  const fromTop = { ...state.services, selected: undefined, offset: 0 };
  switch (key) {
    case 'enter':
      return { ...state, isTyping: false };
    case 'escape':
      return { ...state, services: fromTop, isTyping: false, filter: '' };
    case 'backspace':
      return { ...state, services: fromTop, filter: state.filter.slice(0, -1) };
    default:
      return TYPEABLE.test(key) ? { ...state, services: fromTop, filter: state.filter + key } : state;
  }
}

/** `undefined` for a key that does not move. */
function moved(table: TableState, key: string, { rows, height }: Shown): TableState | undefined {
  const from = selectedIndex(table, rows);
  const to = targetOf(key, from, rows.length, height);
  if (to === undefined) return undefined;
  const index = Math.max(0, Math.min(to, rows.length - 1));
  const before = visibleOffset(table, { index: from, height, count: rows.length });
  return {
    ...table,
    // At the top the selection stays with the place: what rises there is what the user wants to see.
    selected: index === 0 ? undefined : rows[index]?.key,
    offset: visibleOffset({ offset: before }, { index, height, count: rows.length }),
  };
}

function targetOf(key: string, from: number, count: number, height: number): number | undefined {
  switch (key) {
    case 'up':
    case 'k':
      return from - 1;
    case 'down':
    case 'j':
      return from + 1;
    case 'page-up':
      return from - height;
    case 'page-down':
      return from + height;
    case 'home':
    case 'g':
      return 0;
    case 'end':
    case 'G':
      return count - 1;
    default:
      return undefined;
  }
}

/** `undefined` for a key that does not sort. */
function sorted(table: TableState, key: string, columns: readonly string[]): TableState | undefined {
  if (key === 'r') return { ...table, isReversed: !table.isReversed };
  const step = STEPS.get(key);
  if (step === undefined) return undefined;
  const next = (columns.indexOf(table.sortBy) + step + columns.length) % columns.length;
  return { ...table, sortBy: columns[next] ?? table.sortBy, isReversed: false };
}

const STEPS: ReadonlyMap<string, number> = new Map([
  ['left', -1],
  ['<', -1],
  ['right', 1],
  ['>', 1],
]);

/** 0 when the row that was selected is gone. */
export function selectedIndex(
  { selected }: Pick<TableState, 'selected'>,
  rows: readonly { readonly key: string }[],
): number {
  return selected === undefined
    ? 0
    : Math.max(
        0,
        rows.findIndex(({ key }) => key === selected),
      );
}

/** The first row to show: as near to where it was as shows the selected one and leaves no room unused. */
export function visibleOffset(
  { offset }: Pick<TableState, 'offset'>,
  { index, height, count }: { readonly index: number; readonly height: number; readonly count: number },
): number {
  const lowest = Math.max(0, index - height + 1);
  const highest = Math.max(0, Math.min(index, count - height));
  return Math.max(lowest, Math.min(offset, highest));
}
