import { ApiError } from './api-error.ts';

/** One page of a list. */
export interface ListPage {
  readonly items: readonly unknown[];
  /** What to ask for the next one with; empty after the last. */
  readonly next: string;
  readonly resourceVersion: string;
}

/** Throws an {@link ApiError}. */
export function readPage(body: unknown): ListPage {
  const list = body as { items?: unknown; metadata?: { continue?: unknown; resourceVersion?: unknown } } | null;
  // No items are null in Go's JSON. Without a version it is not a list, and must not be taken for an empty one.
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
