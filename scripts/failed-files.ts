import { relative, resolve } from 'node:path';
import type { TestEvent } from 'node:test/reporters';

/** A reporter of `node --test`: the files that were run and had a test that failed, a line each. */
export default async function* failedFiles(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const seen = new Set<string>();
  for await (const event of events) {
    const file = failed(event);
    if (file === undefined || seen.has(file)) continue;
    seen.add(file);
    yield `${relative('', file)}\n`;
  }
}

/** Not the file that a failed test stands in: that may be a module, which has no tests when it is run by itself. */
function failed({ type, data }: TestEvent): string | undefined {
  if (type === 'test:summary') return data.success ? undefined : data.file;
  // A file that cannot be loaded, or is killed, is a test itself, whose name is the file's, and has no summary.
  return type === 'test:fail' && resolve(data.name) === data.file ? data.file : undefined;
}
