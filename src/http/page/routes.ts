import type { View } from '../../model/view.ts';
import type { Clock } from '../../util/clock.ts';
import { oneAtATime, sleep } from '../../util/wait.ts';
import { atOnce, type Handler, type HttpResponse, JSON_TYPE, TEXT } from '../http-server.ts';
import { statusCsv, statusJson } from './exports.ts';
import { eventsTable, marks, overview, plots } from './overview.ts';
import { CONTENT_SECURITY_POLICY, type Parts, page } from './page.ts';
import { type PageQuery, parsePageQuery } from './page-query.ts';
import { select, servicesTable } from './services.ts';

/* The status page, for people with a browser, beside the metrics: /status and its other forms. */

/** Live pages at the same time. Each costs some time of the event loop. */
const MAX_LIVE = 8;
/** Downloads of each kind at the same time. They are much longer than pages. */
const MAX_EXPORTS = 2;

const PERIOD_MS = 2_000;
/** A live page pauses at least this many times the duration of its rendering: with thousands of Services, seconds. */
const REST = 20;

const HEADERS = {
  'Content-Security-Policy': CONTENT_SECURITY_POLICY,
  'Referrer-Policy': 'no-referrer',
  'Cache-Control': 'no-store',
  'Cross-Origin-Resource-Policy': 'same-origin',
} as const;

/**
 * The status page, the same as CSV and JSON, and the stream that keeps it live. It is read-only and shows what
 * `/metrics` on the same address shows, so it authenticates no client either.
 */
export function statusRoutes(view: View, clock: Clock): readonly (readonly [path: string, Handler])[] {
  const render = oneAtATime(async (query: PageQuery) => {
    const node = await view.node();
    const selection = await select(view, query, clock);
    const parts: Parts = {
      mark: marks(node, selection.states),
      overview: overview(node),
      plots: plots(view.history()),
      services: servicesTable(selection, query, node),
      events: eventsTable(view.events()),
    };
    return { node, parts };
  });
  const answer = (contentType: string, body: HttpResponse['body'], more: Partial<HttpResponse> = {}): HttpResponse => ({
    status: 200,
    contentType,
    headers: HEADERS,
    body,
    ...more,
  });
  const busy = (text: string) => answer(TEXT, text, { status: 503 });
  const document: Handler = async ({ query, signal }) => {
    const wanted = parsePageQuery(query);
    const rendered = await render(wanted, signal);
    return answer(
      'text/html; charset=utf-8',
      rendered === undefined ? '' : page(rendered.node, rendered.parts, wanted),
    );
  };
  // With thousands of Services, many megabytes, which a client far away takes minutes to read.
  const whole = (contentType: string, make: typeof statusJson): Handler =>
    atOnce(
      MAX_EXPORTS,
      busy('Others are being answered; try again.\n'),
    )(() => answer(contentType, make(view, clock), { deadline: 'part' }));
  /**
   * The parts of the page as server-sent events: all at first, then every two seconds those that have changed, in one
   * event. The next one is made when the client has taken the one before. Ends when the client has left.
   */
  async function* live(query: PageQuery, signal: AbortSignal): AsyncGenerator<string> {
    const sent = new Map<string, string>();
    // Milliseconds until a client that was cut off reconnects.
    yield 'retry: 3000\n\n';
    while (!signal.aborted) {
      const beganMs = clock.now();
      const rendered = await render(query, signal);
      if (rendered === undefined) return;
      const changed = Object.entries(rendered.parts).filter(([id, { text }]) => sent.get(id) !== text);
      for (const [id, { text }] of changed) sent.set(id, text);
      // Sent also without changes, because a write reveals a client that is gone.
      yield `data: ${JSON.stringify(Object.fromEntries(changed.map(([id, { text }]) => [id, text])))}\n\n`;
      await sleep(Math.max(PERIOD_MS, REST * (clock.now() - beganMs)), clock, signal);
    }
  }
  const tooMany = busy(`${MAX_LIVE} others are looking already; reload the page now and then.\n`);
  return [
    ['/', document],
    ['/status', document],
    ['/status.json', whole(JSON_TYPE, statusJson)],
    ['/status.csv', whole('text/csv; charset=utf-8', statusCsv)],
    [
      '/status/live',
      atOnce(
        MAX_LIVE,
        tooMany,
      )(({ query, signal }) => answer('text/event-stream', live(parsePageQuery(query), signal), { deadline: 'part' })),
    ],
  ];
}
