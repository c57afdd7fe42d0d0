import type { TestEvent } from 'node:test/reporters';

/** The end of one test, as a line of JSON. */
export interface Outcome {
  readonly title: string;
  readonly result: 'passed' | 'failed' | 'skipped';
  readonly error?: string;
}

/** A reporter of `node --test` for programs: of each test, not of suites, one line. */
export default async function* lines(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  for await (const event of events) {
    if (event.type !== 'test:pass' && event.type !== 'test:fail') continue;
    const { name: title, skip, details } = event.data;
    if (details.type === 'suite') continue;
    const result = skip !== undefined ? 'skipped' : event.type === 'test:pass' ? 'passed' : 'failed';
    const error = event.type === 'test:fail' ? { error: String(event.data.details.error.cause ?? '') } : {};
    yield `${JSON.stringify({ title, result, ...error } satisfies Outcome)}\n`;
  }
}
