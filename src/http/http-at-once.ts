import type { Handler, HttpResponse } from './http.ts';

/** So many requests are under way at most, each until its client has the answer or has left; others are told so. */
export function atOnce(max: number, busy: HttpResponse, handler: Handler): Handler {
  let count = 0;
  return (request) => {
    if (count >= max) return busy;
    count++;
    request.signal.addEventListener('abort', () => count--);
    return handler(request);
  };
}
