export interface TarFile {
  /** At most 100 ASCII characters. */
  readonly name: string;
  readonly text: string;
}

const BLOCK = 512;

/** An archive in the format `ustar` (POSIX.1-1988) of plain files. `atMs`: when they were made, since 1970. */
export function tarOf(files: readonly TarFile[], atMs: number): Buffer {
  const parts = files.flatMap(({ name, text }) => {
    const content = Buffer.from(text);
    return [headerOf(name, content.length, atMs), content, Buffer.alloc(-content.length & (BLOCK - 1))];
  });
  // Two empty blocks are its end.
  return Buffer.concat([...parts, Buffer.alloc(2 * BLOCK)]);
}

function headerOf(name: string, size: number, atMs: number): Buffer {
  const header = Buffer.alloc(BLOCK);
  const octal = (value: number, at: number, length: number) =>
    header.write(`${value.toString(8).padStart(length - 1, '0')}\0`, at, 'latin1');
  header.write(name, 0, 100, 'latin1');
  octal(0o600, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(size, 124, 12);
  octal(Math.floor(atMs / 1_000), 136, 12);
  header.write('0', 156, 'latin1');
  header.write('ustar\x0000', 257, 'latin1');
  // The sum counts its own field as spaces.
  header.fill(' ', 148, 156);
  octal(
    header.reduce((sum, byte) => sum + byte, 0),
    148,
    7,
  );
  return header;
}
