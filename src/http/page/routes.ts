import type { View } from '../../model/view.ts';
import type { Clock } from '../../util/clock.ts';
import { oneAtATime } from '../../util/wait.ts';
import { atOnce, type Handler, type HttpResponse, JSON_TYPE, TEXT } from '../http-server.ts';
import { statusCsv, statusJson } from './exports.ts';
import { liveEvents } from './live.ts';
import { CONTENT_SECURITY_POLICY, page } from './page.ts';
import { type PageQuery, parsePageQuery } from './page-query.ts';
import { makeParts } from './parts.ts';

/** People who look at the same time. Each costs some time of the event loop. */
const MAX_LIVE = 8;

/** Of each kind at the same time. They are much longer than pages, and nobody's eyes wait for them. */
const MAX_EXPORTS = 2;

const HEADERS = {
  'Content-Security-Policy': CONTENT_SECURITY_POLICY,
  'Referrer-Policy': 'no-referrer',
  'Cache-Control': 'no-store',
  'Cross-Origin-Resource-Policy': 'same-origin',
} as const;

/**
 * The status page, what it shows as CSV and JSON, and the stream that keeps it live. It can be read only, and tells
 * what `/metrics` on the same address tells, so it asks nobody who they are either.
 */
export function statusRoutes(view: View, clock: Clock): readonly (readonly [path: string, Handler])[] {
  const partsOf = oneAtATime((query: PageQuery) => makeParts(view, query, clock));
  const answer = (contentType: string, body: HttpResponse['body'], more: Partial<HttpResponse> = {}): HttpResponse => ({
    status: 200,
    contentType,
    headers: HEADERS,
    body,
    ...more,
  });
  const document: Handler = async ({ query, signal }) => {
    const wanted = parsePageQuery(query);
    const made = await partsOf(wanted, signal);
    return answer('text/html; charset=utf-8', made === undefined ? '' : page(made.node, made.parts, wanted));
  };
  const busy = (text: string) => answer(TEXT, text, { status: 503 });
  // With thousands of Services, many megabytes, which somebody far away takes minutes to read.
  const whole = (contentType: string, body: HttpResponse['body']) => answer(contentType, body, { unhurried: true });
  const others = busy('Others are being answered; try again.\n');
  return [
    ['/', document],
    ['/status', document],
    ['/status.json', atOnce(MAX_EXPORTS, others, () => whole(JSON_TYPE, statusJson(view, clock)))],
    ['/status.csv', atOnce(MAX_EXPORTS, others, () => whole('text/csv; charset=utf-8', statusCsv(view, clock)))],
    [
      '/status/live',
      atOnce(
        MAX_LIVE,
        busy(`${MAX_LIVE} others are looking already; reload the page now and then.\n`),
        ({ query, signal }) =>
          answer('text/event-stream', liveEvents(partsOf, parsePageQuery(query), clock, signal), { unhurried: true }),
      ),
    ],
  ];
}
