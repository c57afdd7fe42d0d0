import { fit, fitName } from '../format/text.ts';
import { type Column, shownColumns } from './columns.ts';
import { type Glyphs, type Line, line, type Size, type Span, span } from './frame.ts';
import { selectedIndex, type TableState, visibleOffset } from './state.ts';

/** The titles and the visible rows: as many lines as there are rows, and `size.rows` + 1 at most. */
export function tableLines<Row extends { readonly key: string }>(
  rows: readonly Row[],
  columns: readonly Column<Row>[],
  table: TableState,
  size: Size,
  glyphs: Glyphs,
): Line[] {
  const shown = shownColumns(columns, rows, size.columns);
  const widths = widthsOf(shown, size.columns);
  const index = selectedIndex(table, rows);
  const offset = visibleOffset(table, { index, height: size.rows, count: rows.length });
  const visible = rows.slice(offset, offset + size.rows);
  return [
    titles(shown, widths, table, size.columns, glyphs),
    ...visible.map((row, number) => {
      const isSelected = offset + number === index;
      const cells = shown.map((column, at): Span => {
        const width = widths[at] ?? 0;
        const text =
          at === 0
            ? fitName(column.text(row), width, glyphs.ellipsis)
            : fit(column.text(row), width, column.align, glyphs.ellipsis);
        return span(text, isSelected ? 'selected' : (column.style?.(row) ?? 'plain'));
      });
      return line(size.columns, separated(cells, isSelected ? 'selected' : 'plain'), glyphs);
    }),
  ];
}

function titles<Row>(
  columns: readonly Column<Row>[],
  widths: readonly number[],
  { sortBy, isReversed }: TableState,
  screenColumns: number,
  glyphs: Glyphs,
): Line {
  const cells = columns.map(({ title, align, isDescending }, at) => {
    const sign = isDescending === isReversed ? glyphs.ascending : glyphs.descending;
    const width = widths[at] ?? 0;
    const marked = title === sortBy ? `${title.slice(0, width - 1)}${sign}` : title;
    return span(fit(marked, width, align, glyphs.ellipsis), 'heading');
  });
  return line(screenColumns, separated(cells, 'heading'), glyphs);
}

function separated(cells: readonly Span[], style: Span['style']): Span[] {
  return cells.flatMap((cell, at) => (at === 0 ? [cell] : [span(' ', style), cell]));
}

function widthsOf<Row>(columns: readonly Column<Row>[], screenColumns: number): number[] {
  const others = columns.slice(1).reduce((sum, { width }) => sum + width + 1, 0);
  return columns.map(({ width }, at) => (at === 0 ? Math.max(0, screenColumns - others) : width));
}
