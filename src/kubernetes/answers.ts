import { ApiError, readStatus } from './api-error.ts';

/** One page of a list. */
interface ListPage {
  readonly items: readonly unknown[];
  /** The `continue` parameter of the next page; empty after the last. */
  readonly next: string;
  readonly resourceVersion: string;
}

/** Throws an {@link ApiError}. */
export function readPage(body: unknown): ListPage {
  const list = body as { items?: unknown; metadata?: { continue?: unknown; resourceVersion?: unknown } } | null;
  // An empty list is null in Go's JSON. Without a version it is not a list, and must not be taken for an empty one.
  const items = list?.items ?? [];
  const resourceVersion = list?.metadata?.resourceVersion;
  const next = list?.metadata?.continue ?? '';
  if (
    !Array.isArray(items) ||
    typeof resourceVersion !== 'string' ||
    resourceVersion === '' ||
    typeof next !== 'string'
  ) {
    throw new ApiError('garbage', 'the answer is JSON, but not a list');
  }
  return { items, next, resourceVersion };
}

/** One line of a watch (`k8s.io/apimachinery/pkg/watch`), with the object still raw. */
export type WatchEvent =
  | { readonly type: 'changed' | 'deleted'; readonly object: unknown; readonly resourceVersion: string }
  | {
      readonly type: 'bookmark';
      readonly resourceVersion: string;
      /** A streamed list is complete. */
      readonly endsInitialEvents: boolean;
    };

/** Throws an {@link ApiError}: `event` for an ERROR event, `garbage` for a line that is no event of the API. */
export function parseWatchEvent(line: string): WatchEvent {
  let parsed: unknown;
  try {
    parsed = JSON.parse(line);
  } catch {
    // Without the message of the parser: its quote says less than the beginning of the line.
    throw garbage(`a line is not JSON: ${JSON.stringify(line.slice(0, 60))}`);
  }
  if (!isObject(parsed)) throw garbage('a line is not an event');
  const { type, object } = parsed;
  if (type === 'ERROR') {
    const { code, message = 'an ERROR event without a message', retryAfterMs } = readStatus(object);
    throw new ApiError('event', message, { ...(code !== undefined && { status: code }), retryAfterMs });
  }
  const metadata = isObject(object) && isObject(object['metadata']) ? object['metadata'] : {};
  const { resourceVersion, annotations } = metadata;
  if (typeof resourceVersion !== 'string' || resourceVersion === '') {
    throw garbage('an event has no metadata.resourceVersion');
  }
  switch (type) {
    case 'ADDED':
    case 'MODIFIED':
      return { type: 'changed', object, resourceVersion };
    case 'DELETED':
      return { type: 'deleted', object, resourceVersion };
    case 'BOOKMARK': {
      const endsInitialEvents = isObject(annotations) && annotations['k8s.io/initial-events-end'] === 'true';
      return { type: 'bookmark', resourceVersion, endsInitialEvents };
    }
    default:
      throw garbage(`an event has the unknown type ${JSON.stringify(String(type).slice(0, 60))}`);
  }
}

function garbage(problem: string): ApiError {
  return new ApiError('garbage', problem);
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
