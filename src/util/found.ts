/** What was found, and what to do about it. Both are clauses without a full stop. */
export interface Found {
  readonly found: string;
  /** Absent when nothing has to be done, or when there is nothing to say about it. */
  readonly advice?: string;
}

/** For one line of a log: `is missing; write the name of the Service`. */
export function foundText({ found, advice }: Found): string {
  return advice === undefined ? found : `${found}; ${advice}`;
}

/** An error whose cure is known. */
export class FoundError extends Error {
  override readonly name: string = 'FoundError';
  readonly why: Found;

  constructor(why: Found) {
    super(foundText(why));
    this.why = why;
  }
}
