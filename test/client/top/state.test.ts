import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  initialState,
  press,
  type Shown,
  type State,
  selectedIndex,
  visibleOffset,
} from '../../../src/client/top/state.ts';

const rows = Array.from({ length: 50 }, (_, index) => ({
  key: `r${index}`,
  namespace: 'ns',
  service: `s${index}`,
}));
const shown: Shown = { rows, height: 10, columns: ['SERVICE', 'CONNS', 'CONN/S'] };
const endpoints: Shown = { rows: [{ key: 'e0' }, { key: 'e1' }], height: 10, columns: ['ENDPOINT', 'CONNS'] };

function after(keys: readonly string[], from: State = initialState(2_000), what = shown): State {
  return keys.reduce((state, key) => press(state, key, what), from);
}

function selected({ services }: State): number {
  return selectedIndex(services, rows);
}

describe('the selected row', () => {
  const cases: readonly (readonly [keys: readonly string[], index: number, offset: number])[] = [
    [[], 0, 0],
    [['up'], 0, 0],
    [['down', 'j'], 2, 0],
    [['down', 'down', 'k', 'up'], 0, 0],
    [['page-down'], 10, 1],
    [['page-down', 'page-down', 'up', 'up'], 18, 11],
    [['page-down', 'page-down', 'page-up'], 10, 10],
    [['end'], 49, 40],
    [['G', 'page-up', 'page-up'], 29, 29],
    [['end', 'down', 'g'], 0, 0],
    [['end', 'home'], 0, 0],
  ];
  for (const [keys, index, offset] of cases) {
    test(`after ${keys.join(', ') || 'nothing'} is ${index}`, () => {
      const state = after(keys);
      assert.equal(selected(state), index);
      assert.equal(visibleOffset(state.services, { index, height: 10, count: 50 }), offset);
    });
  }

  test('stays with its Service when the order changes', () => {
    const state = after(['down', 'down']);
    assert.equal(selectedIndex(state.services, rows.toReversed()), 47);
  });

  test('takes the rows around it along, and then moves among these', () => {
    const state = after(['end']);
    const reversed = { ...shown, rows: rows.toReversed() };
    const one = press(state, 'down', reversed);
    assert.equal(one.services.selected, 'r48');
    assert.equal(one.services.offset, 0);
  });

  test('stays at the top, whatever rises there', () => {
    const state = after(['down', 'up']);
    assert.equal(selectedIndex(state.services, rows.toReversed()), 0);
  });

  test('is the first one when the Service is gone, or there is none', () => {
    assert.equal(selectedIndex({ selected: 'gone' }, rows), 0);
    assert.equal(after(['down', 'enter', 'end'], undefined, { ...shown, rows: [] }).opened, undefined);
  });

  test('is on the screen, which leaves no room unused', () => {
    assert.equal(visibleOffset({ offset: 45 }, { index: 49, height: 10, count: 50 }), 40);
    assert.equal(visibleOffset({ offset: 0 }, { index: 30, height: 10, count: 50 }), 21);
    assert.equal(visibleOffset({ offset: 30 }, { index: 2, height: 10, count: 50 }), 2);
    assert.equal(visibleOffset({ offset: 5 }, { index: 0, height: 10, count: 3 }), 0);
  });
});

describe('sorting', () => {
  test('goes from column to column and around', () => {
    assert.equal(initialState(1).services.sortBy, 'CONN/S');
    assert.equal(after(['left']).services.sortBy, 'CONNS');
    assert.equal(after(['right']).services.sortBy, 'SERVICE');
    assert.equal(after(['>', '<']).services.sortBy, 'CONN/S');
  });

  test('is turned around until another column is chosen', () => {
    assert.equal(after(['r']).services.isReversed, true);
    assert.equal(after(['r', 'r']).services.isReversed, false);
    assert.equal(after(['r', 'left']).services.isReversed, false);
  });
});

describe('a Service', () => {
  test('is opened and closed, and found again where it is by then', () => {
    const state = after(['down', 'down', 'enter']);
    assert.deepEqual(state.opened, { key: 'r2', namespace: 'ns', service: 's2' });
    for (const key of ['escape', 'backspace']) {
      const closed = after([key], state);
      assert.equal(closed.opened, undefined);
      assert.equal(selected(closed), 2);
    }
  });

  test('is found again even if it was only the first', () => {
    const closed = after(['escape'], after(['enter']));
    assert.equal(selectedIndex(closed.services, rows.toReversed()), 49);
  });

  test('has a table of its own', () => {
    const opened = after(['down', 'enter']);
    const state = after(['right', 'down'], opened, endpoints);
    assert.equal(state.endpoints.sortBy, 'CONNS');
    assert.equal(state.endpoints.selected, 'e1');
    assert.equal(state.services.sortBy, 'CONN/S');
    assert.equal(after(['enter'], state, endpoints).opened, state.opened);
    assert.equal(after(['escape', 'enter'], state).endpoints.selected, undefined);
  });
});

describe('the filter', () => {
  test('is typed, with keys that mean something elsewhere', () => {
    const state = after(['down', '/', 'q', '?', 'p', 'é', ' ', 'up', 'backspace', 'enter']);
    assert.equal(state.filter, 'q?');
    assert.equal(state.isTyping, false);
    assert.equal(state.isOver || state.isHelping || state.isPaused, false);
    assert.equal(selected(state), 0);
  });

  test('is dropped by Esc, while it is typed and later', () => {
    assert.deepEqual(after(['/', 'a', 'escape']), initialState(2_000));
    assert.equal(after(['/', 'a', 'enter', 'escape']).filter, '');
  });

  test('is about Services', () => {
    assert.equal(after(['enter', '/']).opened, undefined);
  });

  test('does not keep Ctrl-C from ending it', () => assert.equal(after(['/', 'ctrl-c']).isOver, true));
});

describe('what is left', () => {
  test('q and Ctrl-C end it', () => {
    assert.equal(after(['q']).isOver, true);
    assert.equal(after(['ctrl-c']).isOver, true);
    assert.equal(after(['?', 'q']).isOver, true);
  });

  test('help comes and goes', () => {
    assert.equal(after(['?']).isHelping, true);
    assert.equal(after(['h', 'x']).isHelping, false);
  });

  test('it pauses and goes on', () => {
    assert.equal(after(['p']).isPaused, true);
    assert.equal(after(['p', ' ']).isPaused, false);
  });

  test('it looks more or less often, within bounds', () => {
    assert.equal(after(['+']).delayMs, 5_000);
    assert.equal(after(['-']).delayMs, 1_000);
    assert.equal(after(['-', '-', '-', '-']).delayMs, 500);
    assert.equal(after(['+', '+', '+', '+', '+']).delayMs, 30_000);
    assert.equal(after(['+'], initialState(3_000)).delayMs, 5_000);
  });

  test('keys that are none change nothing', () => {
    const state = initialState(2_000);
    assert.equal(press(state, 'x', shown), state);
  });
});
