import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import {
  type Expression,
  type Identifier,
  isAsExpression,
  isBinaryExpression,
  isCallExpression,
  isConditionalExpression,
  isElementAccessExpression,
  isIdentifier,
  isObjectLiteralExpression,
  isParenthesizedExpression,
  isPropertyAccessExpression,
  isPropertyAssignment,
  isSatisfiesExpression,
  isShorthandPropertyAssignment,
  isStringLiteralLikeNode,
  isTemplateExpression,
  isVariableDeclaration,
  type Node,
} from 'typescript/unstable/ast';
import { API } from 'typescript/unstable/sync';

const root = join(import.meta.dirname, '../..');

/** Their arguments, or properties, are lines of the log. The message is the one that is a sentence. */
const CALLS: ReadonlySet<string> = new Set(['warn', 'error', '#tell', '#atBound']);
/** Beside a `message`. */
const LEVELS: ReadonlySet<string> = new Set(["'warn'", "'error'", 'level']);

interface Found {
  readonly file: string;
  /** With … for what differs. */
  readonly message: string;
}

interface Declared {
  readonly value: Expression;
  readonly scope: Node;
}

type Declarations = ReadonlyMap<string, readonly Declared[]>;

/** Every text that an expression may be. */
function textsOf(expression: Expression, declarations: Declarations): readonly string[] {
  const of = (inner: Expression) => textsOf(inner, declarations);
  if (isStringLiteralLikeNode(expression)) return [expression.text];
  if (isTemplateExpression(expression)) {
    return [`${expression.head.text}${expression.templateSpans.map(({ literal }) => `…${literal.text}`).join('')}`];
  }
  if (isParenthesizedExpression(expression) || isAsExpression(expression) || isSatisfiesExpression(expression)) {
    return of(expression.expression);
  }
  if (isConditionalExpression(expression)) return [...of(expression.whenTrue), ...of(expression.whenFalse)];
  if (isBinaryExpression(expression)) {
    const [left, right] = [of(expression.left), of(expression.right)];
    const isSum = expression.operatorToken.getText() === '+';
    if (!isSum) return [...left, ...right];
    return (left.length === 0 ? ['…'] : left).flatMap((one) =>
      (right.length === 0 ? ['…'] : right).map((two) => one + two),
    );
  }
  if (isObjectLiteralExpression(expression)) {
    return expression.properties.flatMap((each) => (isPropertyAssignment(each) ? of(each.initializer) : []));
  }
  if (isElementAccessExpression(expression) || isPropertyAccessExpression(expression)) return of(expression.expression);
  if (!isIdentifier(expression)) return [];
  const value = declarationOf(expression.text, expression, declarations);
  return value === undefined ? [] : of(value);
}

/** The innermost one in whose block the use is. */
function declarationOf(name: string, use: Node, declarations: Declarations): Expression | undefined {
  const all = declarations.get(name) ?? [];
  for (let scope: Node | undefined = use; scope !== undefined; scope = scope.parent) {
    const found = all.find((each) => each.scope === scope);
    if (found !== undefined) return found.value;
  }
  return undefined;
}

function isSentence(text: string): boolean {
  return /^[A-Z…].* .* /.test(text);
}

function declarationsIn(source: Node): Declarations {
  const declarations = new Map<string, Declared[]>();
  const visit = (node: Node): void => {
    if (isVariableDeclaration(node) && isIdentifier(node.name) && node.initializer !== undefined) {
      const { text } = node.name;
      // Declaration, list, statement, block.
      const declared = { value: node.initializer, scope: node.parent.parent.parent };
      declarations.set(text, [...(declarations.get(text) ?? []), declared]);
    }
    node.forEachChild(visit);
  };
  visit(source);
  return declarations;
}

/** What a call logs, or a line that is described as an object. */
function loggedBy(node: Node): readonly Expression[] {
  if (isCallExpression(node) && isPropertyAccessExpression(node.expression)) {
    return CALLS.has(node.expression.name.getText()) ? node.arguments : [];
  }
  if (!isObjectLiteralExpression(node)) return [];
  const isLine = node.properties.some(isLevel);
  return node.properties.flatMap((each): readonly Expression[] => {
    if (isShorthandPropertyAssignment(each))
      return isLine && each.name.getText() === 'message' ? [each.name as Identifier] : [];
    if (!isPropertyAssignment(each)) return [];
    const name = each.name.getText();
    return name === 'begun' || (name === 'message' && isLine) ? [each.initializer] : [];
  });
}

function isLevel(property: Node): boolean {
  if (isShorthandPropertyAssignment(property)) return property.name.getText() === 'level';
  return (
    isPropertyAssignment(property) && property.name.getText() === 'level' && LEVELS.has(property.initializer.getText())
  );
}

/** `logged`: warnings and errors; `texts`: all that stands in the sources. */
function readSources(): { readonly logged: readonly Found[]; readonly texts: ReadonlySet<string> } {
  const api = new API({ cwd: root });
  const logged: Found[] = [];
  const texts = new Set<string>();
  try {
    const [project] = api.updateSnapshot({ openProjects: [join(root, 'tsconfig.json')] }).getProjects();
    assert.ok(project !== undefined);
    for (const file of project.program.getSourceFileNames().filter((each) => each.startsWith(`${root}/src/`))) {
      const source = project.program.getSourceFile(file);
      if (source === undefined) continue;
      const declarations = declarationsIn(source);
      const visit = (node: Node): void => {
        for (const text of loggedBy(node)
          .flatMap((each) => textsOf(each, declarations))
          .filter(isSentence)) {
          logged.push({ file: file.slice(root.length + 1), message: text });
        }
        if (isStringLiteralLikeNode(node) || isTemplateExpression(node) || isBinaryExpression(node)) {
          for (const text of textsOf(node, new Map())) texts.add(text);
        }
        node.forEachChild(visit);
      };
      visit(source);
    }
    return { logged, texts };
  } finally {
    api.close();
  }
}

/** Which sentences with warnings' names are no lines of the log: what the checks find, and what commands print. */
const OTHER_ROOMS = /^src\/(?:check|cli)\/|^src\/app\/check\.ts$/;

const page = readFileSync(join(root, 'docs/log-messages.md'), 'utf8');
const rows = [...page.matchAll(/^\| (?!message \||---)(.*?) \|/gm)].flatMap(([, row = '']) =>
  row.split(/, or (?=[A-Z…])/),
);
const { logged, texts } = readSources();
const messages = logged.filter(({ file }) => !OTHER_ROOMS.test(file));

/** A text with … for what differs matches another one with … in the same places, or for more. */
function matches(row: string, message: string): boolean {
  const pattern = row.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&').replaceAll('…', '.*');
  return new RegExp(`^${pattern}$`).test(message);
}

test('docs/log-messages.md has each warning and error, also those in variables', () => {
  assert.ok(messages.length > 90, `${messages.length} messages`);
  assert.deepEqual(
    messages.filter(({ message }) => !rows.some((row) => matches(row, message))),
    [],
  );
});

test('and no other: each of its rows is a whole text of the sources', () => {
  assert.ok(rows.length > 90, `${rows.length} rows`);
  assert.deepEqual(
    rows.filter((row) => ![...texts].some((text) => matches(row, text))),
    [],
  );
});
