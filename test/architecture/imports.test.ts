import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { FOLDERS, importsOf, isRoot, violations } from './import-rules.ts';

const root = join(import.meta.dirname, '../..');
const files = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.ts'))
  .map((name) => `src/${name}`);
const textOf = (file: string) => readFileSync(join(root, file), 'utf8');

describe('the sources', () => {
  test('import only what the tables allow', () => {
    const found = files.flatMap((file) => violations(file, textOf(file)));
    assert.deepEqual(found, [], `\n${found.join('\n')}\n`);
  });

  test('lie in folders that the table knows', () => {
    const folders = new Set(files.filter((file) => !isRoot(file)).map((file) => file.split('/')[1] ?? ''));
    assert.deepEqual(
      [...folders].filter((folder) => !FOLDERS.has(folder)),
      [],
    );
  });

  test('are read completely: every "from" of an import is found', () => {
    for (const file of files) {
      const named = textOf(file).match(/^(?:import|export|\}).* from '[^']+'/gm)?.length ?? 0;
      const found = importsOf(textOf(file)).length;
      assert.ok(found >= named, `${file}: ${found} of ${named}`);
    }
  });

  test('end the process in one place, which cannot hang (ADR 15)', () => {
    const ending = files.filter((file) => /\bprocess\.(?:exit|reallyExit|abort)\(/.test(textOf(file)));
    assert.deepEqual(ending, ['src/host/end-process.ts']);
  });
});

test('the table of folders has no cycle', () => {
  // Taking away again and again what imports nothing that is left must empty it.
  let left = new Map(FOLDERS);
  for (let size = -1; size !== left.size; ) {
    size = left.size;
    left = new Map([...left].filter(([, imports]) => imports.some((folder) => left.has(folder))));
  }
  assert.deepEqual([...left.keys()], []);
});

describe('an import', () => {
  const cases: readonly (readonly [file: string, source: string, complaint: RegExp | undefined])[] = [
    ['src/rules/a.ts', `import { b } from '../model/b.ts';`, undefined],
    ['src/rules/a.ts', `import { b } from './b.ts';`, undefined],
    ['src/dataplane/node/a.ts', `import type { b } from '../../picker/b.ts';`, undefined],
    ['src/main.ts', `import { b } from './telemetry/b.ts';\nimport 'node:child_process';`, undefined],
    ['src/main/a.ts', `import { b } from '../telemetry/b.ts';\nimport { c } from './c.ts';`, undefined],
    ['src/cli/version.ts', `import p from '../../package.json' with { type: 'json' };`, undefined],
    ['src/state/a.ts', `import { isDeepStrictEqual } from 'node:util';`, undefined],
    ['src/sources/manifests/a.ts', `import { parse } from 'yaml';`, undefined],
    ['src/sources/kubernetes/a.ts', `import k from '@kubernetes/client-node/dist/config.js';`, undefined],
    ['src/host/a.ts', `// import x from 'winston';\n/* import x from 'winston'; */`, undefined],

    [
      'src/model/a.ts',
      `import '../contracts/b.ts';`,
      /model\/a\.ts imports \.\.\/contracts\/b\.ts: .* for model: model$/,
    ],
    ['src/rules/a.ts', `import { b } from '../state/b.ts';`, /for rules: rules, model, contracts$/],
    ['src/rules/a.ts', `import type { b } from '../state/b.ts';`, /for rules/],
    ['src/rules/a.ts', `import {\n  b,\n  c,\n} from '../state/b.ts';`, /for rules/],
    ['src/rules/a.ts', `export { b } from '../state/b.ts';`, /for rules/],
    ['src/rules/a.ts', `export * from '../state/b.ts';`, /for rules/],
    ['src/rules/a.ts', `const b = await import('../state/b.ts');`, /for rules/],
    ['src/rules/a.ts', `type B = import('../state/b.ts').B;`, /for rules/],
    ['src/rules/a.ts', `import { b } from '../rules/../state/b.ts';`, /for rules/],
    ['src/rules/a.ts', 'const b = await import(path);', /computed path/],
    ['src/rules/a.ts', 'const b = await import(`../state/b.ts`);', /computed path/],
    ['src/sync/a.ts', `import { main } from '../main.ts';`, /composition root/],
    ['src/sync/a.ts', `import { run } from '../main/run.ts';`, /composition root/],
    ['src/sync/a.ts', `import { b } from '../rules/b';`, /with \.ts$/],
    ['src/extra/a.ts', `import { b } from '../model/b.ts';`, /src\/extra\/ is in the table/],
    ['src/util.ts', `import { b } from './model/b.ts';`, /only src\/main\.ts to lie outside a folder/],
    ['src/cli/a.ts', `import p from '../../package.json' with { type: 'json' };`, /nothing outside src/],
    ['src/sync/a.ts', `import { fake } from '../../test/fakes/fake.ts';`, /nothing outside src/],

    ['src/main.ts', `import yargs from 'yargs';`, /node: builtins and the folders/],
    ['src/host/a.ts', `import { parse } from 'yaml';`, /yaml only in sources/],
    ['src/telemetry/a.ts', `import yargs from 'yargs';`, /yargs only in cli\//],
    ['src/cli/a.ts', `import winston from 'winston';`, /winston only in telemetry\//],
    ['src/sync/a.ts', `import { Gauge } from 'prom-client';`, /prom-client only in telemetry\//],
    ['src/sync/a.ts', `import k from '@kubernetes/client-node/dist/config.js';`, /only in sources\/kubernetes\//],
    ['src/sync/a.ts', `import _ from 'lodash';`, /of packages only yaml/],
    ['src/sync/a.ts', `import fs from 'fs';`, /of packages only yaml/],
    ['src/host/a.ts', `import { spawn } from 'node:child_process';`, /node:child_process only in iptables\//],
    ['src/host/a.ts', `import { isIP } from 'node:net';`, /node:net only in dataplane\/, telemetry\/http-server\.ts/],
    ['src/telemetry/a.ts', `import { isIP } from 'node:net';`, /node:net only in/],
    ['src/sync/a.ts', `import dgram from 'node:dgram';`, /node:dgram only in dataplane\//],
    ['src/picker/a.ts', `import { readFileSync } from 'node:fs';`, /in a pure folder only node:util/],
  ];
  for (const [file, source, complaint] of cases) {
    test(`in ${file}: ${source.replaceAll('\n', ' ')} is ${complaint ? 'refused' : 'fine'}`, () => {
      const found = violations(file, source);
      if (complaint === undefined) assert.deepEqual(found, []);
      else assert.match(found.join('\n'), complaint);
    });
  }
});
