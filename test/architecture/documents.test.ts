import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, test } from 'node:test';
import { COMMANDS } from '../../src/app/subcommands.ts';
import { parse } from '../../src/cli/parser.ts';
import { ACCEPTED_FLAGS } from '../../src/config/accepted.ts';
import { SCHEDULERS } from '../../src/model/scheduler.ts';

/** Of a cell: about four lines of a column. */
const MAX_WORDS = 40;

const root = join(import.meta.dirname, '../..');

function read(path: string): string {
  return readFileSync(join(root, path), 'utf8');
}

describe('README.md and docs/', () => {
  const documents = ['README.md', 'CONTRIBUTING.md', 'test/README.md', ...globSync('docs/**/*.md', { cwd: root })];

  test('the index leads to each page', () => {
    const index = read('docs/README.md');
    const pages = globSync('*.md', { cwd: join(root, 'docs') }).filter((page) => page !== 'README.md');
    assert.deepEqual(
      pages.filter((page) => !index.includes(`](${page})`)),
      [],
    );
  });

  test('link to files and headings that are there', () => {
    const broken = documents.flatMap((document) =>
      [...read(document).matchAll(/\]\(([^)\s]+)\)/g)]
        .map(([, link = '']) => link)
        .filter((link) => !link.includes('://') && !leadsSomewhere(document, link))
        .map((link) => `${document}: ${link}`),
    );
    assert.deepEqual(broken, []);
  });

  test('the lines of table cells are short; what is longer is a section of its own', () => {
    const long = documents
      .filter((document) => !document.startsWith('docs/adr/'))
      .flatMap((document) =>
        read(document)
          .split('\n')
          .filter((line) => line.startsWith('| '))
          .flatMap((line) => line.split(/(?<!\\)\||<br>/))
          .filter((cell) => cell.trim().split(/\s+/).length > MAX_WORDS)
          .map((cell) => `${document}: ${cell.trim()}`),
      );
    assert.deepEqual(long, []);
  });

  test('the front page is short', () => {
    const bytes = Buffer.byteLength(read('README.md'));
    assert.ok(bytes <= 8_000, `${bytes} bytes`);
  });

  // Not those that list flags of other programs, nor what is generated.
  const others = ['flags', 'leaving-ipvs', 'metrics', 'parity', 'performance'].map((name) => `docs/${name}.md`);
  const guides = ['README.md', ...globSync('docs/*.md', { cwd: root }).filter((page) => !others.includes(page))];

  test('guides name flags that there are', () => {
    const pages = [['--help'], ...COMMANDS.map(({ name }) => [name, '--help'])];
    const text = pages.map((argv) => parse(argv, COMMANDS).output).join('\n');
    // Those of other programs stand in blocks, or behind the program's name.
    const unknown = guides.flatMap((guide) =>
      [...read(guide).matchAll(/`(--[a-z][a-z-]+)/g)]
        .map(([, flag = '']) => flag)
        .filter((flag) => !text.includes(`${flag} `) && !flag.endsWith('-') && !OF_OTHERS.has(flag))
        .map((flag) => `${guide}: ${flag}`),
    );
    assert.deepEqual(unknown, []);
  });

  test('guides name metrics that there are', () => {
    const reference = read('docs/metrics.md');
    const unknown = guides.flatMap((guide) =>
      [...read(guide).matchAll(/\b(?:userspace_proxy|kubeproxy|process|nodejs)_[a-z0-9_]*[a-z0-9]\b/g)]
        .map(([name]) => name.replace(/_bucket$/, ''))
        .filter((name) => !reference.includes(`\`${name}\``) && !reference.includes(`\`${name}_`))
        .map((name) => `${guide}: ${name}`),
    );
    assert.deepEqual(unknown, []);
  });
});

test('docs/leaving-ipvs.md says what becomes of each flag of that mode, and of each scheduler', () => {
  const page = read('docs/leaving-ipvs.md');
  const flags = Object.entries(ACCEPTED_FLAGS).flatMap(([name, { of, ...rest }]) => {
    const { field = '' } = rest as { readonly field?: string };
    return of === 'ipvs mode' ? [`--${name}`, field] : [];
  });
  assert.ok(flags.length > 10, flags.join());
  const names = [...flags, ...SCHEDULERS, 'dh', 'lblc', 'lblcr', 'ovf'].filter((name) => name !== '');
  assert.deepEqual(
    names.filter((name) => !page.includes(`\`${name}\``)),
    [],
  );
});

test('docs/parity.md names a test file in every row but a "no"', () => {
  const rows = read('docs/parity.md').match(/^\| .* \| (?:yes|differs|no) \| .*$/gm) ?? [];
  assert.ok(rows.length > 50, `${rows.length} rows`);
  assert.deepEqual(
    rows.filter((row) => !/\| no \| \S|\]\(\.\.\/test\/[^)]+\.ts\)/.test(row)),
    [],
  );
});

/** Of the API server and of kubeadm. */
const OF_OTHERS: ReadonlySet<string> = new Set(['--service-node-port-range', '--skip-phases']);

function leadsSomewhere(document: string, link: string): boolean {
  const [path = '', heading] = link.split('#');
  const target = path === '' ? document : join(dirname(document), path);
  if (!existsSync(join(root, target))) return false;
  return heading === undefined || anchorsOf(read(target)).includes(heading);
}

/** As GitHub makes them of headings. */
function anchorsOf(markdown: string): string[] {
  return [...markdown.matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  );
}
