export interface HttpRequest {
  readonly query: URLSearchParams;
  /** Aborted when the client has left, or has its answer. */
  readonly signal: AbortSignal;
}

export interface HttpResponse {
  readonly status: number;
  readonly contentType: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** A long one comes in parts, each made when the client has taken the one before. */
  readonly body: string | AsyncIterable<string>;
  /** It goes on for as long as the client takes it: the deadline is for each part, not for the whole. */
  readonly unhurried?: true;
}

/** One that throws or rejects is answered with 500. */
export type Handler = (request: HttpRequest) => HttpResponse | Promise<HttpResponse>;

/** By path, without the query. */
export type Routes = Pick<ReadonlyMap<string, Handler>, 'get'>;

export const TEXT = 'text/plain; charset=utf-8';
export const JSON_TYPE = 'application/json';
