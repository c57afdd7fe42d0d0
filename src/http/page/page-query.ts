/* What the page shows. All of it is in the URL, so that it can be shared and works without JavaScript. */

/** What the table of Services can be sorted by; the first is the default: the worst is above. */
export const SORTS = [
  'state',
  'name',
  'active',
  'waiting',
  'rate',
  'connect',
  'total',
  'in',
  'out',
  'received',
  'sent',
  'retries',
  'failures',
  'endpoints',
] as const;
export type Sort = (typeof SORTS)[number];

export interface PageQuery {
  /** In lower case. A Service must have all of them in its name, addresses, ports or state. */
  readonly words: readonly string[];
  readonly sort: Sort;
  /** Against the column's own direction. */
  readonly reversed: boolean;
  readonly hideHealthy: boolean;
  /** From 1. */
  readonly page: number;
  /** Rows whose endpoints are shown, by their {@link rowKey}. */
  readonly open: readonly string[];
}

/** Each row may have hundreds of endpoints, rendered in one turn of the event loop. The rows opened last count. */
export const MAX_OPEN = 20;
const MAX_SEARCH = 200;

/** A {@link rowKey} of valid names. Keys must be short, because each link of the page repeats all open ones. */
const ROW_KEY = /^[a-z0-9-]{1,63}\/[a-z0-9-]{1,63}(:[a-z0-9-]{1,63})?(\/IPv6)?$/;

/** Ignores invalid values: the client may be hostile. */
export function parsePageQuery(query: URLSearchParams): PageQuery {
  const page = Number(query.get('page'));
  return {
    words: (query.get('q') ?? '').slice(0, MAX_SEARCH).toLowerCase().split(/\s+/).filter(Boolean),
    sort: SORTS.find((sort) => sort === query.get('sort')) ?? 'state',
    reversed: query.get('reversed') === '1',
    hideHealthy: query.get('hide') === 'healthy',
    page: Number.isSafeInteger(page) && page > 0 ? page : 1,
    open: query
      .getAll('open')
      .filter((key) => ROW_KEY.test(key))
      .slice(-MAX_OPEN),
  };
}

/** The inverse of {@link parsePageQuery}. */
export function pageParameters({ words, sort, reversed, hideHealthy, page, open }: PageQuery): URLSearchParams {
  const query = new URLSearchParams();
  if (words.length > 0) query.set('q', words.join(' '));
  if (sort !== 'state') query.set('sort', sort);
  if (reversed) query.set('reversed', '1');
  if (hideHealthy) query.set('hide', 'healthy');
  if (page !== 1) query.set('page', String(page));
  for (const key of open) query.append('open', key);
  return query;
}

/** "?q=web&sort=active", or "?" for the default. */
export function printPageQuery(query: PageQuery): string {
  return `?${pageParameters(query)}`;
}

/** One row of the table: a Service port within one address family. */
export function rowKey({ name, family }: { readonly name: string; readonly family: string }): string {
  return family === 'IPv4' ? name : `${name}/${family}`;
}
