import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { readRegularFile } from '../../src/kernel/regular-file.ts';

describe('reading a regular file', () => {
  const directory = mkdtempSync(join(tmpdir(), 'kup-file-'));
  after(() => rmSync(directory, { recursive: true }));
  const path = join(directory, 'file');

  test('gives its text, also through a link', () => {
    writeFileSync(path, 'ä: 1\n');
    symlinkSync(path, join(directory, 'link'));
    assert.equal(readRegularFile(path), 'ä: 1\n');
    assert.equal(readRegularFile(join(directory, 'link')), 'ä: 1\n');
  });

  test('of up to 1 MiB', () => {
    writeFileSync(path, 'x'.repeat(1024 * 1024));
    assert.equal(readRegularFile(path).length, 1024 * 1024);
    writeFileSync(path, 'x'.repeat(1024 * 1024 + 1));
    assert.throws(() => readRegularFile(path), /^Error: has 1048577 bytes; at most 1048576 are read$/);
  });

  test('refuses what is none, without waiting for a pipe', () => {
    const pipe = join(directory, 'pipe');
    execFileSync('mkfifo', [pipe]);
    for (const odd of [directory, '/dev/zero', pipe]) assert.throws(() => readRegularFile(odd), /is no regular file/);
    assert.throws(() => readRegularFile(join(directory, 'missing')), /cannot be read \(ENOENT\); check the path/);
  });
});
