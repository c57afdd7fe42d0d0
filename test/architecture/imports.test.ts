import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { calls, callsAside } from '../../src/sys/calls.ts';
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
    assert.deepEqual(ending, ['src/kernel/process.ts']);
  });

  test('call all functions of libc that the table declares', () => {
    const text = files.map(textOf).join('\n');
    for (const [table, names] of Object.entries({ calls, callsAside })) {
      for (const name of Object.keys(names))
        assert.match(text, new RegExp(`\\b${table}\\.${name}\\b`), `${table}.${name}`);
    }
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

test('comments have lines of at most 120 columns, which Biome does not check', () => {
  const folders = ['src', 'test', 'scripts', 'bench'];
  const names = folders.flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' }).map((name) => `${folder}/${name}`),
  );
  const tooLong = names
    .filter((name) => name.endsWith('.ts'))
    .flatMap((name) =>
      textOf(name)
        .split('\n')
        .map((line, index) => ({ line, at: `${name}:${index + 1}` })),
    )
    .filter(({ line }) => line.length > 120 && /^\s*(\/\/|\/?\*)/.test(line));
  assert.deepEqual(tooLong, []);
});

test('prose of the documents has lines of at most 120 characters', () => {
  const names = readdirSync(join(root, 'docs')).filter((name) => name.endsWith('.md'));
  const tooLong = ['README.md', 'CONTRIBUTING.md', ...names.map((name) => `docs/${name}`)].flatMap((name) =>
    prose(textOf(name))
      .filter(([line]) => [...line].length > 120)
      .map(([line, index]) => `${name}:${index + 1}: ${line}`),
  );
  assert.deepEqual(tooLong, []);
  const sample = '```\ncode\n```\n| table |\n![picture](x.png)\n[link](y.md)\nsee [z](z.md)';
  assert.deepEqual(prose(sample), [['see [z](z.md)', 6]]);
});

/** Lines with their index, without code blocks, tables, and lines that are a link or a picture alone. */
function prose(markdown: string): readonly (readonly [line: string, index: number])[] {
  let isCode = false;
  return markdown.split('\n').flatMap((line, index) => {
    const isFence = /^\s*```/.test(line);
    if (isFence) isCode = !isCode;
    return isFence || isCode || /^\||^!?\[[^\]]*\]\([^)]*\)$/.test(line) ? [] : [[line, index] as const];
  });
}

describe('an import', () => {
  const cases: readonly (readonly [file: string, source: string, complaint: RegExp | undefined])[] = [
    ['src/services/a.ts', `import { b } from '../model/b.ts';\nimport { c } from './c.ts';`, undefined],
    ['src/main.ts', `import { b } from './http/b.ts';\nimport 'node:child_process';`, undefined],
    ['src/app/a.ts', `import { b } from '../http/b.ts';`, undefined],
    ['src/config/version.ts', `import p from '../../package.json' with { type: 'json' };`, undefined],
    ['src/kubernetes/a.ts', `import k from '@kubernetes/client-node/dist/config.js';`, undefined],
    ['src/kernel/a.ts', `// import x from 'winston';\n/* import x from 'winston'; */`, undefined],

    [
      'src/services/a.ts',
      `import { b } from '../sync/b.ts';`,
      /services\/a\.ts imports .* for services: services, model, util$/,
    ],
    ['src/services/a.ts', `import {\n  b,\n  c,\n} from '../sync/b.ts';`, /for services/],
    ['src/services/a.ts', `export * from '../sync/b.ts';`, /for services/],
    ['src/services/a.ts', `const b = await import('../sync/b.ts');`, /for services/],
    ['src/services/a.ts', `type B = import('../sync/b.ts').B;`, /for services/],
    ['src/services/a.ts', 'const b = await import(path);', /computed path/],
    ['src/sync/a.ts', `import { run } from '../app/run.ts';`, /composition root/],
    ['src/sync/a.ts', `import { b } from '../capture/iptables/b.ts';`, /only in src\/kernel\/iptables/],
    ['src/capture/a.ts', `import { b } from './iptables/b.ts';`, /only in src\/kernel\/iptables/],
    ['src/sync/a.ts', `import { b } from '../model/b';`, /with \.ts$/],
    ['src/extra/a.ts', `import { b } from '../model/b.ts';`, /src\/extra\/ is in the table/],
    ['src/sync/a.ts', `import { fake } from '../../test/fakes/fake.ts';`, /nothing outside src/],
    ['src/main.ts', `import yargs from 'yargs';`, /node: builtins and the folders/],
    ['src/kernel/a.ts', `import { load } from 'js-yaml';`, /js-yaml only in/],
    ['src/sys/a.ts', `import koffi from 'koffi';`, /koffi only in sys\/calls\.ts/],
    ['src/sync/a.ts', `import _ from 'lodash';`, /of packages only/],
    ['src/kernel/a.ts', `import { spawn } from 'node:child_process';`, /node:child_process only in/],
    ['src/services/a.ts', `import { readFileSync } from 'node:fs';`, /in a pure folder only node:util/],
  ];
  for (const [file, source, complaint] of cases) {
    test(`in ${file}: ${source.replaceAll('\n', ' ')} is ${complaint ? 'refused' : 'fine'}`, () => {
      const found = violations(file, source);
      if (complaint === undefined) assert.deepEqual(found, []);
      else assert.match(found.join('\n'), complaint);
    });
  }
});
