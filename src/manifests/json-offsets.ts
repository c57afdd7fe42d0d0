const BLANK = 0x20;

/** Where a member of an object or list is written: its key, which in a list is the value itself, and its value. */
interface Member {
  readonly at: number;
  readonly value: number;
}

/**
 * Where the parts of a JSON text are, for the text has to be read once more to know: `JSON.parse` does not tell, and a
 * parser that does takes twenty times as long. What is looked up is looked through once, however much is asked of it.
 */
export class JsonOffsets {
  readonly #text: string;
  readonly #membersAt = new Map<number, ReadonlyMap<string, Member>>();

  /** `text`: what `JSON.parse` has taken. */
  constructor(text: string) {
    this.#text = text;
  }

  /** Of what a path of keys and indexes leads to, or of the last on the way that is there. */
  of(path: readonly string[]): number {
    let value = this.#afterSpace(0);
    let offset = value;
    for (const step of path) {
      const member = this.#members(value).get(step);
      if (member === undefined) break;
      offset = member.at;
      value = member.value;
    }
    return offset;
  }

  #members(start: number): ReadonlyMap<string, Member> {
    const known = this.#membersAt.get(start);
    if (known !== undefined) return known;
    const members = new Map(this.#readMembers(start));
    this.#membersAt.set(start, members);
    return members;
  }

  *#readMembers(start: number): Generator<readonly [step: string, member: Member]> {
    const text = this.#text;
    const isList = text[start] === '[';
    if (!isList && text[start] !== '{') return;
    let at = this.#afterSpace(start + 1);
    for (let index = 0; at < text.length && !isEnd(text[at]); index += 1) {
      const keyEnd = isList ? at : this.#afterString(at);
      // Past the colon.
      const value = isList ? at : this.#afterSpace(this.#afterSpace(keyEnd) + 1);
      yield [isList ? String(index) : String(JSON.parse(text.slice(at, keyEnd))), { at, value }];
      at = this.#afterValue(value);
      if (text[at] === ',') at = this.#afterSpace(at + 1);
    }
  }

  #afterSpace(start: number): number {
    let at = start;
    // Of all that is not above a blank, JSON has white space only.
    while (this.#text.charCodeAt(at) <= BLANK) at += 1;
    return at;
  }

  /** `start`: of the opening quotation mark. */
  #afterString(start: number): number {
    const text = this.#text;
    let at = start + 1;
    while (at < text.length && text[at] !== '"') at += text[at] === '\\' ? 2 : 1;
    return at + 1;
  }

  /** The comma or the bracket that follows a value. */
  #afterValue(start: number): number {
    const text = this.#text;
    let depth = 0;
    for (let at = start; at < text.length; at += 1) {
      const character = text[at];
      if (character === '"') at = this.#afterString(at) - 1;
      else if (character === '{' || character === '[') depth += 1;
      else if (depth === 0 && (character === ',' || isEnd(character))) return at;
      else if (isEnd(character)) depth -= 1;
    }
    return text.length;
  }
}

function isEnd(character: string | undefined): boolean {
  return character === '}' || character === ']';
}
