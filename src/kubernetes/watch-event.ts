import { readStatus } from './api-error.ts';

/** One line of a watch (`k8s.io/apimachinery/pkg/watch`), read but with the object still raw. */
export type WatchEvent =
  | { readonly type: 'changed' | 'deleted'; readonly object: unknown; readonly resourceVersion: string }
  | {
      readonly type: 'bookmark';
      readonly resourceVersion: string;
      /** A streamed list is complete. */
      readonly endsInitialEvents: boolean;
    }
  | {
      readonly type: 'error';
      readonly code: number | undefined;
      readonly message: string;
      readonly retryAfterMs: number | undefined;
    }
  | { readonly type: 'garbage'; readonly problem: string };

/** Never throws: whatever is not one of the API's events is `garbage`. */
export function parseWatchEvent(line: string): WatchEvent {
  let parsed: unknown;
  try {
    parsed = JSON.parse(line);
  } catch {
    // Without the parser's message: it quotes the text, which says less than its beginning does.
    return garbage(`a line is not JSON: ${JSON.stringify(line.slice(0, 60))}`);
  }
  if (!isObject(parsed)) return garbage('a line is not an event');
  const { type, object } = parsed;
  if (type === 'ERROR') {
    const { code, message, retryAfterMs } = readStatus(object);
    return { type: 'error', code, message: message ?? 'an ERROR event without a message', retryAfterMs };
  }
  const metadata = isObject(object) && isObject(object['metadata']) ? object['metadata'] : {};
  const resourceVersion = metadata['resourceVersion'];
  if (typeof resourceVersion !== 'string' || resourceVersion === '') {
    return garbage('an event has no metadata.resourceVersion');
  }
  switch (type) {
    case 'ADDED':
    case 'MODIFIED':
      return { type: 'changed', object, resourceVersion };
    case 'DELETED':
      return { type: 'deleted', object, resourceVersion };
    case 'BOOKMARK': {
      const annotations = metadata['annotations'];
      const endsInitialEvents = isObject(annotations) && annotations['k8s.io/initial-events-end'] === 'true';
      return { type: 'bookmark', resourceVersion, endsInitialEvents };
    }
    default:
      return garbage(`an event has the unknown type ${JSON.stringify(String(type).slice(0, 60))}`);
  }
}

function garbage(problem: string): WatchEvent {
  return { type: 'garbage', problem };
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
