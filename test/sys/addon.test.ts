import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { type Addon, addonPlaces, loadAddon } from '../../src/sys/addon.ts';

const CONTENT = 'the addon';
const SHA256 = createHash('sha256').update(CONTENT).digest('hex');

describe("koffi's addon", () => {
  let folder: string;
  /** Folders that are as if they were mounted noexec. */
  let noexec: string[];

  const addon: Addon = {
    sha256: SHA256,
    content: () => Buffer.from(CONTENT),
    load: (path) => {
      if (noexec.some((each) => readdirSync(each).some((file) => sameFile(join(each, file), path)))) {
        throw new Error('failed to map segment from shared object');
      }
      return readFileSync(path, 'utf8');
    },
  };
  const at = (name: string) => join(folder, name);
  const load = (installed: string[], directories: string[]) =>
    loadAddon({ installed: installed.map(at), directories: directories.map(at) }, addon);

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'addon-'));
    noexec = [];
  });

  afterEach(() => rmSync(folder, { recursive: true }));

  test('comes from the installed file, and nothing is written', () => {
    writeFileSync(at('koffi.node'), CONTENT);
    assert.equal(load(['missing.node', 'koffi.node'], ['private']), CONTENT);
    assert.deepEqual(readdirSync(folder), ['koffi.node']);
  });

  test('is written once into a private directory, where only its owner can change it', () => {
    assert.equal(load([], ['private']), CONTENT);
    const [file = ''] = readdirSync(at('private'));
    assert.equal(file, `koffi-${SHA256.slice(0, 16)}.node`);
    const written = statSync(at(`private/${file}`));
    assert.equal(written.mode & 0o777, 0o500);
    assert.equal(statSync(at('private')).mode & 0o777, 0o700);
    assert.equal(load([], ['private']), CONTENT);
    assert.equal(statSync(at(`private/${file}`)).ino, written.ino);
  });

  test('is not loaded from a file of another version, or one that others can write', () => {
    writeFileSync(at('koffi.node'), 'of another version');
    assert.equal(load(['koffi.node'], ['private']), CONTENT);
    writeFileSync(at('open.node'), CONTENT);
    chmodSync(at('open.node'), 0o666);
    assert.throws(
      () => load(['koffi.node', 'open.node'], []),
      /not the file .* built with.*others than root and this/s,
    );
  });

  test('is not loaded through a symbolic link, or from a directory of another user', {
    skip: process.getuid?.() !== 0,
  }, () => {
    writeFileSync(at('koffi.node'), CONTENT);
    symlinkSync(at('koffi.node'), at('link.node'));
    assert.throws(() => load(['link.node'], []), /link\.node: ELOOP/);
    mkdirSync(at('foreign'));
    chownSync(at('foreign'), 65534, 65534);
    mkdirSync(at('open'));
    chmodSync(at('open'), 0o777);
    assert.throws(() => load([], ['foreign', 'open']), /foreign.*not private to this user.*open.*not private/s);
    assert.deepEqual([...readdirSync(at('foreign')), ...readdirSync(at('open'))], []);
  });

  test('replaces a wrong file in the private directory', () => {
    load([], ['private']);
    const [file = ''] = readdirSync(at('private'));
    rmSync(at(`private/${file}`));
    writeFileSync(at(`private/${file}`), 'half of it');
    assert.equal(load([], ['private']), CONTENT);
  });

  test('comes from the next place where one cannot be mapped as code; the error names each place', () => {
    noexec = ['one'].map(at);
    mkdirSync(at('one'), { mode: 0o700 });
    assert.equal(load([], ['one', 'two']), CONTENT);
    noexec = ['one', 'two'].map(at);
    assert.throws(() => load([], ['one', 'two']), /any place \(\/.*\/one\/koffi-.*: failed to map.*\/two\/koffi-/);
  });

  test('places: what an installation brings, then directories of this user alone', () => {
    const { installed, directories } = addonPlaces('/usr/sbin/kube-userspace-proxy', {}, 0);
    assert.deepEqual(installed, ['/usr/sbin/koffi.node', '/usr/lib/kube-userspace-proxy/koffi.node']);
    assert.equal(directories[0], '/run/kube-userspace-proxy');
    const user = addonPlaces('/home/user/kube-userspace-proxy', { XDG_RUNTIME_DIR: '/run/user/7' }, 7);
    assert.equal(user.directories[0], '/run/user/7/kube-userspace-proxy');
    assert.ok(user.directories.every((each) => each.includes('7')));
  });
});

function sameFile(a: string, b: string): boolean {
  return statSync(a).ino === statSync(b).ino;
}
