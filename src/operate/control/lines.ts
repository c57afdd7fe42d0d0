const NEWLINE = 10;

/** The lines of a stream, without their ends; what follows the last newline is none. Throws when one is above the bound. */
export async function* linesOf(chunks: AsyncIterable<Buffer>, maxBytes: number): AsyncGenerator<string> {
  let parts: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of chunks) {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      parts.push(chunk.subarray(start, end));
      check(bytes + end - start, maxBytes);
      yield Buffer.concat(parts).toString();
      parts = [];
      bytes = 0;
      start = end + 1;
    }
    parts.push(chunk.subarray(start));
    bytes += chunk.length - start;
    check(bytes, maxBytes);
  }
}

function check(bytes: number, maxBytes: number): void {
  if (bytes > maxBytes) throw new Error(`a line is longer than ${maxBytes} bytes`);
}
