import { Field, FieldError, parseJson } from '../util/untrusted.ts';
import { ApiError, readStatus } from './api-error.ts';

/** One page of a list. */
interface ListPage {
  readonly items: readonly unknown[];
  /** The `continue` parameter of the next page; empty after the last. */
  readonly next: string;
  readonly resourceVersion: string;
}

/** Throws an {@link ApiError} `garbage`. */
export function readPage(body: unknown): ListPage {
  return orGarbage('the answer is not a list', () => {
    const list = Field.root(body);
    const metadata = list.get('metadata');
    return {
      // Go writes null for an empty list. JSON without a version must not count as an empty list.
      items: list
        .get('items')
        .items()
        .map(({ value }) => value),
      next: metadata.get('continue').stringOr(''),
      resourceVersion: versionOf(metadata),
    };
  });
}

/** One line of a watch (`k8s.io/apimachinery/pkg/watch`). The object is not decoded. */
export type WatchEvent =
  | { readonly type: 'changed' | 'deleted'; readonly object: unknown; readonly resourceVersion: string }
  | {
      readonly type: 'bookmark';
      readonly resourceVersion: string;
      /** A streamed list is complete. */
      readonly endsInitialEvents: boolean;
    };

const EVENT_TYPES = ['ADDED', 'MODIFIED', 'DELETED', 'BOOKMARK', 'ERROR'] as const;

/** Throws an {@link ApiError}: `event` for an ERROR event, `garbage` for a line that is not an event of the API. */
export function parseWatchEvent(line: string): WatchEvent {
  return orGarbage('a line is not an event', () => {
    const parsed = parseJson(line);
    if (parsed === undefined) throw new ApiError('garbage', `a line is not JSON: ${JSON.stringify(line.slice(0, 60))}`);
    const event = Field.root(parsed);
    const type = event.get('type').oneOf(EVENT_TYPES);
    const object = event.get('object');
    if (type === 'ERROR') {
      const { code, message = 'an ERROR event without a message', retryAfterMs } = readStatus(object.value);
      throw new ApiError('event', message, { ...(code !== undefined && { status: code }), retryAfterMs });
    }
    const metadata = object.get('metadata');
    const resourceVersion = versionOf(metadata);
    if (type !== 'BOOKMARK') {
      return { type: type === 'DELETED' ? 'deleted' : 'changed', object: object.value, resourceVersion };
    }
    const endsInitialEvents = metadata.get('annotations').get('k8s.io/initial-events-end').value === 'true';
    return { type: 'bookmark', resourceVersion, endsInitialEvents };
  });
}

function versionOf(metadata: Field): string {
  const field = metadata.get('resourceVersion');
  if (field.string() === '') throw field.wrong('expected a version');
  return field.string();
}

function orGarbage<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof FieldError) throw new ApiError('garbage', `${what}: ${error.message}`);
    throw error;
  }
}
