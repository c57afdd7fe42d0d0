/** The declarations of sources, by name: the body of an interface or what a type stands for, without comments. */
export function declarationsIn(sources: readonly string[]): ReadonlyMap<string, string> {
  const declarations = new Map<string, string>();
  for (const source of sources) {
    const text = source.replaceAll(/\/\*[\s\S]*?\*\/|\/\/.*/g, '');
    for (const { 1: kind, 2: name = '', index, 0: head } of text.matchAll(/^export (interface|type) (\w+)\b/gm)) {
      const rest = text.slice(index + head.length);
      declarations.set(name, rest.slice(0, rest.search(kind === 'type' ? /;$(?!\n {2})/m : /^\}$/m) + 1));
    }
  }
  return declarations;
}

/** `Pick<Name, 'key' | …>` or `Name`. */
const NAMED = /\bPick<\s*(\w+),([^>]*)>|\b([A-Z]\w*)/g;

/**
 * The paths of keys that JSON of a type can have, optional ones included: `listeners.endpoints.state`. The sources have
 * one form: `readonly key: Type;` or `readonly key?: Type;`, and `extends` with names or with `Pick<Name, 'key' | …>`.
 */
export function keysOf(type: string, declarations: ReadonlyMap<string, string>): string[] {
  const [head = '', ...members] = split(type);
  const inherited = [...head.matchAll(NAMED)].flatMap(([, from = '', picked, name = from]) => {
    const keys = keysOf(declarations.get(name) ?? '', declarations);
    return picked === undefined ? keys : keys.filter((key) => picked.includes(`'${key.split('.', 1)[0]}'`));
  });
  const own = members.flatMap((member) => {
    const [, key = '', rest = ''] = /^readonly (\w+)\??:\s([\s\S]*)$/.exec(member) ?? [];
    return key === '' ? [] : [key, ...keysOf(rest, declarations).map((below) => `${key}.${below}`)];
  });
  return [...new Set([...inherited, ...own])];
}

/** What stands in front of the first brace, and then each member in any brace of this level. */
function split(type: string): string[] {
  const parts = [''];
  let depth = 0;
  for (const character of type) {
    if (character === '}') depth -= 1;
    if (depth === 1 && character === ';') parts.push('');
    else if (depth === 0 && character !== '{' && character !== '}') parts[0] += character;
    else if (depth > 0) parts[parts.length - 1] += character;
    if (character === '{') {
      depth += 1;
      if (depth === 1) parts.push('');
    }
  }
  return parts.map((part) => part.trim());
}
