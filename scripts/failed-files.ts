import { relative } from 'node:path';
import type { TestEvent } from 'node:test/reporters';

/** A reporter of `node --test`: the files in which a test failed, a line each. */
export default async function* failedFiles(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const seen = new Set<string>();
  for await (const { type, data } of events) {
    // A file that cannot be loaded, or takes too long, is a test itself, whose name is the file's.
    const file = type === 'test:fail' ? relative('', data.file ?? data.name) : '';
    if (file === '' || seen.has(file)) continue;
    seen.add(file);
    yield `${file}\n`;
  }
}
