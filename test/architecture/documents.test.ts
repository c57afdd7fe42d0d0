import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, test } from 'node:test';
import { parseCommandLine } from '../../src/cli/command-line.ts';
import { subcommandHelp } from '../../src/client/help.ts';
import { SUBCOMMANDS } from '../../src/client/subcommands.ts';

const root = join(import.meta.dirname, '../..');

function read(path: string): string {
  return readFileSync(join(root, path), 'utf8');
}

/** Concatenated literals as one text, so that a message can be found whichever way its source is folded. */
const source = globSync('src/**/*.ts', { cwd: root })
  .map((path) => read(path).replaceAll(/['`] \+\s+['`]/g, ''))
  .join('\n');

describe('README.md and docs/', () => {
  const documents = ['README.md', 'CONTRIBUTING.md', ...globSync('docs/**/*.md', { cwd: root })];

  test('link to files and headings that are there', () => {
    const broken = documents.flatMap((document) =>
      [...read(document).matchAll(/\]\(([^)\s]+)\)/g)]
        .map(([, link = '']) => link)
        .filter((link) => !link.includes('://') && !leadsSomewhere(document, link))
        .map((link) => `${document}: ${link}`),
    );
    assert.deepEqual(broken, []);
  });

  const guides = ['README.md', 'docs/operations.md', 'docs/troubleshooting.md'];

  test('guides name flags that there are', () => {
    const help = parseCommandLine(['--help']);
    assert.ok(help.kind === 'help');
    const text = [help.text, ...SUBCOMMANDS.map(subcommandHelp)].join('\n');
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

describe('docs/operations.md', () => {
  const chapter = read('docs/operations.md').split('\n## What the log says\n')[1]?.split('\n## ')[0] ?? '';
  const messages = [...chapter.matchAll(/^\| (?!message|---)(.*?) \|/gm)].map(([, message = '']) => message);

  test('explains messages that there are', () => {
    assert.ok(messages.length > 50, `${messages.length} messages`);
    const literals = (message: string) => message.split('…').map((part) => part.trim());
    assert.deepEqual(
      messages.filter((message) => !literals(message).every((literal) => source.includes(literal))),
      [],
    );
  });

  test('explains every warning and error', () => {
    const told = [...source.matchAll(/\blog\.(?:warn|error)\(\s*(['"`])(.*?)\1\s*[,)]/gs)].map(
      ([, , text = '']) => text,
    );
    assert.ok(told.length > 40, `${told.length} messages`);
    // "…" stands for whatever a message fills in, and for what is not worth repeating.
    const patterns = messages.map((message) => new RegExp(`^${message.split('…').map(escaped).join('.*')}$`));
    assert.deepEqual(
      told.filter((text) => !patterns.some((pattern) => pattern.test(text))),
      [],
      'add a row with what it means and what to do',
    );
  });
});

function escaped(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|]/g, '\\$&');
}

/** Of the API server. */
const OF_OTHERS: ReadonlySet<string> = new Set(['--service-node-port-range']);

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
