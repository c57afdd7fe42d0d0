import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { type Bundle, bundle } from '../../scripts/bundle.ts';

const MODULES = new URL('../../scripts/sea/modules.ts', import.meta.url);

/** Runs `--version` with modules from the current folder; says which were read, and which of Node's were loaded. */
const RUN = `
  import { readFileSync } from 'node:fs';
  import { Modules } from '${MODULES}';
  const read = [];
  process.on('exit', () => console.log(JSON.stringify({ read, loaded: process.moduleLoadList })));
  // As in scripts/sea/code-cache.ts.
  process.exit = () => {};
  process.argv = [process.execPath, 'main.js', '--version'];
  const { require } = new Modules((name) => {
    read.push(name);
    return { source: readFileSync(name, 'latin1') };
  });
  require('./main.js');`;

describe('the bundle', () => {
  let built: Bundle;

  before(async () => {
    built = await bundle();
  });

  test('has the programs and what only some need apart from them', () => {
    assert.ok(built.modules.has('main.js') && built.modules.has('iptables-helper.js'));
    const client = [...built.modules].filter(([, text]) => text.includes('KubeConfig = class'));
    assert.equal(client.length, 1);
    assert.ok(!built.modules.get('main.js')?.includes('KubeConfig = class'));
  });

  test('knows whose code it has', () => {
    const has = (name: string) => built.packages.has(`node_modules/${name}`);
    assert.ok(has('yaml') && has('@kubernetes/client-node') && has('logform/node_modules/@colors/colors'));
    // Tools, what only such parts of others need as are not here, and what something of ours takes the place of.
    assert.ok(!has('typescript') && !has('form-data') && !has('string-width') && !has('koffi'));
  });

  test('takes one byte per character in memory', () => {
    for (const [name, text] of [...built.modules, ['worker.js', built.worker], ['loader.js', built.loader]] as const) {
      assert.equal(text.match(/.{0,40}[^\0-\x7f]/)?.[0], undefined, name);
    }
  });

  test('reads what it needs, and loads HTTP without the clients that Node has beside it', () => {
    const folder = mkdtempSync(join(tmpdir(), 'bundle-'));
    try {
      for (const [name, text] of built.modules) writeFileSync(join(folder, name), text);
      const options = { cwd: folder, encoding: 'utf8' } as const;
      const printed = execFileSync(process.execPath, ['--input-type=module', '--eval', RUN], options);
      const [version = '', told = ''] = printed.split('\n');
      assert.match(version, /\d+\.\d+\.\d+/);
      const { read, loaded }: Record<'read' | 'loaded', string[]> = JSON.parse(told);
      assert.ok(read.includes('main.js'));
      assert.ok(!read.some((name) => built.modules.get(name)?.includes('KubeConfig = class')));
      assert.ok(loaded.includes('NativeModule http'));
      assert.deepEqual(
        loaded.filter((name) => name.includes('undici')),
        [],
      );
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
