import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { SERVICE_COLUMNS, shownColumns } from '../../../src/client/top/columns.ts';
import type { ServiceRow } from '../../../src/client/top/look.ts';
import { NO_RATES } from '../../../src/client/top/rates.ts';
import { filterRows, sortRows } from '../../../src/client/top/rows.ts';
import { FakeView } from '../../fakes/fake-view.ts';
import { lookAt } from './scenes.ts';

const { services } = await lookAt(new FakeView({ services: 60 }));

function rated(...connections: readonly number[]): ServiceRow[] {
  return connections.map((each, at) => ({
    ...(services[at] as ServiceRow),
    key: `r${at}`,
    rates: { ...NO_RATES, connections: each },
  }));
}

function keys(rows: readonly { readonly key: string }[]): string[] {
  return rows.map(({ key }) => key);
}

describe('rows', () => {
  test('come with the greatest first, or the least', () => {
    const rows = rated(1, 3, 2);
    assert.deepEqual(keys(sortRows(rows, SERVICE_COLUMNS, 'CONN/S', false)), ['r1', 'r2', 'r0']);
    assert.deepEqual(keys(sortRows(rows, SERVICE_COLUMNS, 'CONN/S', true)), ['r0', 'r2', 'r1']);
  });

  test('that are equal stay in the order of their names, either way around', () => {
    const rows = rated(1, 1, 1);
    assert.deepEqual(keys(sortRows(rows, SERVICE_COLUMNS, 'CONN/S', false)), ['r0', 'r1', 'r2']);
    assert.deepEqual(keys(sortRows(rows, SERVICE_COLUMNS, 'CONN/S', true)), ['r0', 'r1', 'r2']);
  });

  test('come by name in the order of the alphabet', () => {
    const names = sortRows(services, SERVICE_COLUMNS, 'SERVICE', false).map(({ name }) => name);
    assert.deepEqual(names, names.toSorted());
    assert.equal(sortRows(services, SERVICE_COLUMNS, 'SERVICE', true)[0]?.name, names.at(-1));
  });

  test('come by state with the worst first', () => {
    const states = sortRows(services, SERVICE_COLUMNS, 'STATE', false).map(({ state }) => state);
    assert.deepEqual(states.slice(0, 3), ['degraded', 'empty', 'ok']);
  });

  const filters: readonly (readonly [filter: string, names: readonly string[]])[] = [
    ['dns', ['kube-system/dns:dns']],
    ['DNS:d', ['kube-system/dns:dns']],
    ['degr', ['team-10/svc-00050:http']],
    ['10.96.0.1', ['kube-system/dns:dns', ...services.slice(10, 20).map(({ name }) => name)]],
    ['nothing', []],
  ];
  for (const [filter, names] of filters) {
    test(`match "${filter}"`, () =>
      assert.deepEqual(
        filterRows(services, filter).map(({ name }) => name),
        names,
      ));
  }

  test('match an IPv6 address with its bracket and without', () => {
    const over6 = { ...(services[0] as ServiceRow), key: 'six', address: '[fd00:96::10]:80' };
    for (const filter of ['fd00:96', 'FD00:96::10', '[fd00']) {
      assert.deepEqual(keys(filterRows([...services, over6], filter)), ['six'], filter);
    }
  });

  test('are all there without a filter', () => assert.equal(filterRows(services, ''), services));
});

test('columns give way to the name in the order of what they are worth', () => {
  const at = (width: number) => shownColumns(SERVICE_COLUMNS, services, width).map(({ title }) => title);
  assert.deepEqual(at(5), ['SERVICE']);
  assert.deepEqual(at(34), ['SERVICE']);
  assert.deepEqual(at(35), ['SERVICE', 'STATE']);
  assert.deepEqual(at(43), ['SERVICE', 'STATE', 'CONN/S']);
  assert.equal(at(1_000).length, SERVICE_COLUMNS.length);
});

test('an address is shown whole, or not at all', () => {
  const address = '[2001:db8:85a3:1234:5678:8a2e:370:7334]:30080';
  const long = [services[0] as ServiceRow, { ...(services[1] as ServiceRow), address }];
  const widths = Array.from({ length: 200 }, (_, width) => width);
  const addressAt = (rows: readonly ServiceRow[], width: number) =>
    shownColumns(SERVICE_COLUMNS, rows, width).find(({ title }) => title === 'ADDRESS');
  const least = (rows: readonly ServiceRow[]) => widths.find((width) => addressAt(rows, width) !== undefined) ?? 0;
  assert.equal(addressAt(long, 1_000)?.width, address.length);
  assert.equal(least(long) - least(services), address.length - 21);
});
