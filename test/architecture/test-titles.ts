export interface TestCase {
  /** As in the source; what a template fills in is shown as "…". */
  readonly title: string;
  /** Not skipped or left for later, whatever happens. */
  readonly runs: boolean;
}

const CALL = /(?<![.\w])(?:test|it)(\.\w+)?\(\s*(?=['"`])/g;
const LEFT_OUT = /\b(?:skip|todo): *(?:true|['"`])/;

/** The tests in a source file. Reads text, not syntax: that is enough for how tests are written here. */
export function testCases(source: string): TestCase[] {
  return [...source.matchAll(CALL)].map(({ 0: call, 1: modifier, index }) => {
    const { text, end } = readString(source, index + call.length);
    return { title: text, runs: modifier === undefined && !LEFT_OUT.test(optionsAt(source, end)) };
  });
}

/** What stands between the title and the function, a constant of this file replaced by its value. */
function optionsAt(source: string, at: number): string {
  const options = /^[\s\S]*?(?==>|\bfunction\b|$)/.exec(source.slice(at))?.[0] ?? '';
  const constant = /^,\s*([A-Za-z]\w*),/.exec(options)?.[1];
  if (constant === undefined) return options;
  return new RegExp(`\\bconst ${constant} = \\{[^}]*\\}`).exec(source)?.[0] ?? options;
}

/** Reads the string literal that begins at `at`. */
function readString(source: string, at: number): { readonly text: string; readonly end: number } {
  const quote = source[at];
  let text = '';
  for (let index = at + 1; index < source.length; index++) {
    const char = source[index];
    if (char === quote) return { text, end: index + 1 };
    if (char === '\\') text += source[++index];
    else if (quote === '`' && source.startsWith('${', index)) {
      text += '…';
      index = endOfSubstitution(source, index + 2);
    } else text += char;
  }
  return { text, end: source.length };
}

/** Where the brace is that closes a substitution. */
function endOfSubstitution(source: string, at: number): number {
  let depth = 1;
  for (let index = at; index < source.length; index++) {
    if (source[index] === '{') depth++;
    else if (source[index] === '}' && --depth === 0) return index;
  }
  return source.length;
}
