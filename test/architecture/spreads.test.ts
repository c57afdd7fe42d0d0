import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import {
  type Expression,
  isAwaitExpression,
  isBinaryExpression,
  isCallExpression,
  isConditionalExpression,
  isObjectLiteralExpression,
  isParenthesizedExpression,
  isSpreadAssignment,
  type Node,
  type SpreadAssignment,
} from 'typescript/unstable/ast';
import { API, type Checker, type Type } from 'typescript/unstable/sync';

const root = join(import.meta.dirname, '../..');

/** Made for this spread alone: whoever wrote it means every property to arrive. */
function isFresh(expression: Expression): boolean {
  if (isParenthesizedExpression(expression) || isAwaitExpression(expression)) return isFresh(expression.expression);
  if (isConditionalExpression(expression)) return isFresh(expression.whenTrue) || isFresh(expression.whenFalse);
  if (isBinaryExpression(expression)) return isFresh(expression.right);
  return isObjectLiteralExpression(expression) || isCallExpression(expression);
}

const partsOf = (type: Type): readonly Type[] => (type.isUnionType() ? type.getTypes() : [type]);

/** The properties of the spread that the target does not have. The compiler looks for them only outside of spreads. */
function lost({ expression, parent }: SpreadAssignment, checker: Checker): readonly string[] {
  const contextual = isObjectLiteralExpression(parent) ? checker.getContextualType(parent) : undefined;
  const spread = checker.getTypeAtLocation(expression);
  if (contextual === undefined || spread === undefined) return [];
  const targets = partsOf(contextual).filter((type) => checker.getPropertiesOfType(type).length > 0);
  if (targets.length === 0 || targets.some((type) => checker.getIndexInfosOfType(type).length > 0)) return [];
  return partsOf(spread)
    .flatMap((type) => checker.getPropertiesOfType(type))
    .map(({ name }) => name)
    .filter((name) => targets.every((type) => checker.getPropertyOfType(type, name) === undefined));
}

describe('a spread', () => {
  let api: API;

  before(() => {
    api = new API({ cwd: root });
  });

  after(() => api.close());

  /** `file: …spread loses a, b`, of every spread in these files that loses a property. */
  function losses(isMeant: (file: string) => boolean): readonly string[] {
    const [project] = api.updateSnapshot({ openProjects: [join(root, 'tsconfig.json')] }).getProjects();
    assert.ok(project !== undefined);
    const { checker, program } = project;
    const found: string[] = [];
    const visit = (node: Node, file: string) => {
      if (isSpreadAssignment(node) && isFresh(node.expression)) {
        const names = lost(node, checker);
        if (names.length > 0) found.push(`${file.slice(root.length)}: ${node.getText()} loses ${names.join(', ')}`);
      }
      node.forEachChild((child) => visit(child, file));
    };
    for (const file of program.getSourceFileNames().filter(isMeant)) {
      const source = program.getSourceFile(file);
      if (source !== undefined) visit(source, file);
    }
    return found;
  }

  test('of a new object into options loses none of its properties', () => {
    const found = losses((file) => file.startsWith(`${root}/src/`));
    assert.deepEqual(found, [], `\n${found.join('\n')}\nBuild the options without the spread.\n`);
  });

  test('that loses one is found, be it of a literal or of a call', () => {
    const found = losses((file) => file.endsWith('/test/architecture/lossy-spreads.ts'));
    assert.deepEqual(
      found.map((line) => line.split(' loses ')[1]),
      ['reserved', 'reserved', 'limit', 'reserved', 'reserved'],
    );
  });
});
