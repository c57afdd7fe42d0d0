import type { PortRange } from '../model/address.ts';
import { UsageError } from './usage-error.ts';

const MAX_PORT = 65_535;

/**
 * `a-b`, `a+n` (from a to a+n) or a single `n`, as `PortRange.Set` in k8s.io/apimachinery `pkg/util/net/port_range.go`.
 * `undefined` stands for any port: the empty text, `0` and `0-0`.
 *
 * Upstream's allocator ignores the upper end of every range that begins at 0. "0-100" asks for something that it would
 * not get, so here it is refused.
 */
export function parsePortRange(text: string): PortRange | undefined {
  const value = text.trim();
  if (value === '') return undefined;
  const match = /^(\d+)(?:([-+])(\d+))?$/.exec(value);
  if (match === null) throw new UsageError('not a port range: write a-b, a+n or a single port, such as 30000-32767');
  const [, start, notation, end] = match;
  const first = Number(start);
  const last = notation === '+' ? first + Number(end) : Number(end ?? start);
  if (first > MAX_PORT || last > MAX_PORT) throw new UsageError(`ports end at ${MAX_PORT}`);
  if (last < first) throw new UsageError('the last port is below the first');
  if (first === 0 && last > 0) throw new UsageError('a range begins at port 1 or above; 0-0 or "" stands for any port');
  return first === 0 ? undefined : { first, last };
}

/** In the form that {@link parsePortRange} reads. */
export function showPortRange(range: PortRange | undefined): string {
  return range === undefined ? '' : `${range.first}-${range.last}`;
}
