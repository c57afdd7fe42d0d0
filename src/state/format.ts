import { createHash, hash } from 'node:crypto';
import type { Place, SavedObject } from '../model/saved-object.ts';
import { Field, FieldError, isObject, parseJson } from '../util/untrusted.ts';

/*
 * The file of the last state: a line that says what it is, and a line for each object as the API server, or the author
 * of a manifest, would write it. So any program reads it, and the decoders of `kubernetes/` validate it again: it is as
 * hostile as any other file. docs/adr/0041 says why it is not what was decoded.
 */

/** A file of a higher format is not used. Objects may get more fields within a format. */
export const FORMAT = 1;

const WHAT = 'the last state of kube-userspace-proxy';

/** Of whom and of when a state is. */
export interface Provenance {
  /** Of the Node object, or of the machine where there is none. */
  readonly node: string;
  readonly source: 'kubernetes' | 'manifests';
  /** The UID of the Service `default/kubernetes`; absent where there is none. */
  readonly cluster?: string;
  /** The kernel's, which another start of the machine changes. */
  readonly bootId: string;
}

export interface Head extends Provenance {
  /** Of the program that has written it. */
  readonly program: string;
  /** Milliseconds since 1970. */
  readonly writtenAt: number;
}

/** The lines of the objects, in pieces. */
export interface Body {
  readonly pieces: readonly Buffer[];
  /** SHA-256, in hexadecimal digits. */
  readonly digest: string;
}

/** In one write: often enough that memory holds no second copy of all, and no more often than a disk likes. */
const PIECE_CHARACTERS = 64 * 1024;

/** Yields after each object, because there may be tens of thousands. */
export function* bodyOf(objects: Iterable<SavedObject>): Generator<undefined, Body> {
  const pieces: Buffer[] = [];
  const digest = createHash('sha256');
  let text = '';
  const cut = () => {
    const piece = Buffer.from(text);
    digest.update(piece);
    pieces.push(piece);
    text = '';
  };
  for (const each of objects) {
    text += `${JSON.stringify(each)}\n`;
    if (text.length >= PIECE_CHARACTERS) cut();
    yield;
  }
  if (text !== '') cut();
  return { pieces, digest: digest.digest('hex') };
}

/** The first line. It has a sum of its own, as a wrong time or node would do as much harm as a wrong object. */
export function headLine(head: Head, digest: string): Buffer {
  const said = { what: WHAT, format: FORMAT, ...head, body: digest };
  return Buffer.from(`${JSON.stringify({ ...said, sum: sumOf(said) })}\n`);
}

/** Why the content of a file cannot be used: a clause. */
export class UnusableState extends Error {
  override readonly name = 'UnusableState';
}

/** The first line of a file. Throws {@link UnusableState}. */
export function readHead(file: Buffer): { readonly head: Head; readonly digest: string; readonly end: number } {
  const end = file.indexOf('\n') + 1;
  const parsed = parseJson(file.toString('utf8', 0, end));
  if (end === 0 || !isObject(parsed) || parsed['what'] !== WHAT) throw torn('its first line is not one');
  // Before the sum, of which a later program may have another idea.
  const { format } = parsed;
  if (typeof format === 'number' && format > FORMAT) {
    throw new UnusableState(`it is of format ${format}, of a newer program; this one reads up to ${FORMAT}`);
  }
  const { sum, ...said } = parsed;
  if (sum !== sumOf(said)) throw torn('its first line does not have the sum that it names');
  try {
    return { head: decodeHead(Field.root(said)), digest: Field.root(said).get('body').string(), end };
  } catch (error) {
    if (error instanceof FieldError) throw torn(error.message);
    throw error;
  }
}

function decodeHead(field: Field): Head {
  const cluster = field.get('cluster').stringOr('');
  return {
    node: field.get('node').string(),
    source: field.get('source').oneOf(['kubernetes', 'manifests']),
    ...(cluster !== '' && { cluster }),
    bootId: field.get('bootId').string(),
    program: field.get('program').string(),
    writtenAt: field.get('writtenAt').integer(0, Number.MAX_SAFE_INTEGER),
  };
}

/** Throws {@link UnusableState} where the objects from `end` on do not have this digest. Yields now and then. */
export function* checkBody(file: Buffer, end: number, digest: string): Generator<undefined, void> {
  const found = createHash('sha256');
  for (let at = end; at < file.length; at += PIECE_CHARACTERS) {
    found.update(file.subarray(at, at + PIECE_CHARACTERS));
    yield;
  }
  if (found.digest('hex') !== digest) throw torn('its objects do not have the sum that it names');
}

/** The objects from `end` on. Throws {@link UnusableState}. */
export function* readObjects(file: Buffer, end: number): Generator<SavedObject, void> {
  for (let at = end; at < file.length; ) {
    const next = file.indexOf('\n', at);
    if (next < 0) throw torn('its last line has no end');
    const line = Field.root(parseJson(file.toString('utf8', at, next)));
    at = next + 1;
    try {
      const place = line.get('at');
      yield { object: line.get('object').value, ...(place.isPresent && { at: decodePlace(place) }) };
    } catch (error) {
      if (error instanceof FieldError) throw torn(error.message);
      throw error;
    }
  }
}

function decodePlace(place: Field): Place {
  const count = (name: string) => place.get(name).integer(1, Number.MAX_SAFE_INTEGER);
  const field = place.get('field').stringOr('');
  return {
    file: place.get('file').string(),
    document: count('document'),
    line: count('line'),
    ...(field !== '' && { field }),
  };
}

function torn(how: string): UnusableState {
  return new UnusableState(`it is torn or damaged: ${how}`);
}

function sumOf(said: object): string {
  return hash('sha256', JSON.stringify(said), 'hex');
}
