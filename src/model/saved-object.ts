/** One object as it is kept on disk, and where a manifest file has it. */
export interface SavedObject {
  /** As an API server, or the author of a manifest, would write it. */
  readonly object: unknown;
  readonly at?: Place;
}

/** Documents and lines count from 1. */
export interface Place {
  readonly file: string;
  readonly document: number;
  readonly line: number;
  /** As `items[3]` inside a list. */
  readonly field?: string;
}
