import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';

const ROOT = join(import.meta.dirname, '../..');

describe('the bundle', () => {
  let folder: string;

  before(() => {
    folder = execFileSync(process.execPath, [join(ROOT, 'scripts/bundle.ts')], { encoding: 'utf8' }).trim();
  });

  test('takes one byte per character in memory', () => {
    const sources = readdirSync(folder).filter((name) => name.endsWith('.js'));
    assert.ok(sources.includes('main.js') && sources.includes('worker.js') && sources.includes('iptables-helper.js'));
    for (const name of sources) {
      assert.equal(readFileSync(join(folder, name), 'utf8').match(/.{0,40}[^\0-\xff]/)?.[0], undefined, name);
    }
  });

  test('loads HTTP without the clients that Node has beside it', () => {
    const told = 'process.on("exit", () => console.log(JSON.stringify(process.moduleLoadList)))';
    const args = ['--import', `data:text/javascript,${told}`, join(folder, 'main.js'), '--version'];
    const [version = '', modules = ''] = execFileSync(process.execPath, args, { encoding: 'utf8' }).split('\n');
    assert.match(version, /\d+\.\d+\.\d+/);
    const loaded: string[] = JSON.parse(modules);
    assert.ok(loaded.includes('NativeModule http'));
    assert.deepEqual(
      loaded.filter((name) => name.includes('undici')),
      [],
    );
  });
});
