import { hash } from 'node:crypto';
import type { Decoded, FileRules } from '../kubernetes/objects/decoded.ts';
import {
  decodeObject,
  type Kind,
  type KubernetesObject,
  objectIdentity,
} from '../kubernetes/objects/kubernetes-object.ts';
import type { ServiceKey } from '../model/service.ts';
import type { Found } from '../util/found.ts';
import { Field, FieldError, type Problem } from '../util/untrusted.ts';
import { DocumentError, type ParsedDocument, parseLargeDocuments } from '../util/yaml.ts';
import { mistakenKind, partsWithoutEffect } from './mistakes.ts';

/** A problem with the line of the file, from 1, of the field; of a missing field, the line of its parent. */
export interface PlacedProblem extends Problem {
  /** From the root of the document, whereas `field` is from the root of the object. */
  readonly path: string;
  readonly line: number;
}

/** One object of a document. `unknown`: it does not say which object it is. `unused`: no proxy reads its kind. */
export type ManifestObject =
  | {
      readonly status: 'known';
      readonly kind: Kind;
      readonly key: ServiceKey;
      /** As `items[3]` inside a list; empty for an object that is the document. */
      readonly at: string;
      readonly decoded: Decoded<KubernetesObject>;
      /** What makes the object invalid or keeps it from being served, or the parts that were left out. */
      readonly problems: readonly PlacedProblem[];
      readonly withoutEffect: readonly PlacedProblem[];
    }
  | { readonly status: 'unknown'; readonly problem: PlacedProblem }
  | { readonly status: 'unused'; readonly kind: string };

interface ManifestDocument {
  /** Where it is in its file; both from 1. */
  readonly document: number;
  readonly line: number;
  readonly objects: readonly ManifestObject[];
  /** The piece of the file that consists of this document, if it need not be parsed again. */
  readonly piece: Piece | undefined;
}

/** A piece of a file that says one object without a fault. The digest of its text takes less memory than the text. */
export interface Piece {
  readonly digest: string;
  /** Of the document in the piece, from 1. */
  readonly line: number;
  readonly object: KubernetesObject;
}

/** By digest. */
export type KnownPieces = ReadonlyMap<string, Piece>;

export type Reading =
  | { readonly status: 'read'; readonly documents: readonly ManifestDocument[] }
  | {
      /** The file cannot be read or parsed. */
      readonly status: 'unusable';
      readonly err: Found;
      readonly document?: number;
      readonly line?: number;
    };

/**
 * Reads a manifest file piece by piece and yields after each, because parsing is slow. A piece that is `known` is not
 * parsed again, so a change costs what it changes.
 */
export function* readManifest(text: string, known: KnownPieces, rules: FileRules): Generator<void, Reading> {
  const documents: ManifestDocument[] = [];
  for (const { piece, linesBefore } of split(text)) {
    // A file of one piece is only read again when that piece has changed.
    const digest = piece.length === text.length ? undefined : hash('sha256', piece, 'base64');
    try {
      const same = digest === undefined ? undefined : known.get(digest);
      const found = same === undefined ? readPiece(piece, digest, linesBefore, rules) : [documentOf(same)];
      for (const { line, objects, piece: of } of found) {
        documents.push({ document: documents.length + 1, line: linesBefore + line, objects, piece: of });
      }
    } catch (error) {
      if (!(error instanceof DocumentError)) throw error;
      const { why: err, line } = error;
      return { status: 'unusable', err, document: documents.length + 1, line: linesBefore + line };
    }
    yield;
  }
  return { status: 'read', documents };
}

/** `line` is that in the piece. */
type PieceDocument = Omit<ManifestDocument, 'document'>;

function documentOf(piece: Piece): PieceDocument {
  const { line, object } = piece;
  const { kind, key } = object;
  const decoded: Decoded<KubernetesObject> = { status: 'ok', value: object, warnings: [] };
  return { line, objects: [{ status: 'known', kind, key, at: '', decoded, problems: [], withoutEffect: [] }], piece };
}

function readPiece(text: string, digest: string | undefined, linesBefore: number, rules: FileRules): PieceDocument[] {
  const documents = parseLargeDocuments(text).filter(({ value }) => value !== null);
  return documents.map(({ value, lineOf }) => {
    const line = lineOf([]);
    const objects = readObjects({ value, lineOf: (path) => linesBefore + lineOf(path) }, rules);
    const object = documents.length === 1 && objects.length === 1 ? faultless(objects[0]) : undefined;
    return {
      line,
      objects,
      piece: digest === undefined || object === undefined ? undefined : { digest, line, object },
    };
  });
}

/** Lists and objects with faults are rare, and simply read again. */
function faultless(object: ManifestObject | undefined): KubernetesObject | undefined {
  if (object?.status !== 'known' || object.decoded.status !== 'ok' || object.at !== '') return undefined;
  return object.problems.length + object.withoutEffect.length === 0 ? object.decoded.value : undefined;
}

/** A document marker is one at the start of any line, even inside a block scalar (YAML 1.2.2 §9.1.2). */
const MARKER = /(?<![^\n])---(?=[ \t\r\n]|$)/g;

/** More than comments, directives and blank lines. */
const HAS_CONTENT = /^[ \t]*[^\s#%]/m;

/** Cuts a file at its document markers, so that a file may be large although its syntax tree must not be. */
export function* split(text: string): Generator<{ readonly piece: string; readonly linesBefore: number }> {
  let start = 0;
  let linesBefore = 0;
  for (const { index } of text.matchAll(MARKER)) {
    const piece = text.slice(start, index);
    // Directives and comments before the first marker belong to the document that the marker begins.
    if (!HAS_CONTENT.test(piece)) continue;
    yield { piece, linesBefore };
    for (let at = piece.indexOf('\n'); at >= 0; at = piece.indexOf('\n', at + 1)) linesBefore += 1;
    start = index;
  }
  yield { piece: text.slice(start), linesBefore };
}

const LISTS: ReadonlyMap<unknown, { readonly apiVersion: string; readonly itemKind?: Kind }> = new Map([
  ['List', { apiVersion: 'v1' }],
  ['ServiceList', { apiVersion: 'v1', itemKind: 'Service' as const }],
  ['EndpointsList', { apiVersion: 'v1', itemKind: 'Endpoints' as const }],
  ['EndpointSliceList', { apiVersion: 'discovery.k8s.io/v1', itemKind: 'EndpointSlice' as const }],
]);

function readObjects(document: ParsedDocument, rules: FileRules): ManifestObject[] {
  const root = Field.root(document.value);
  try {
    const list = LISTS.get(root.get('kind').value);
    if (list === undefined || root.get('apiVersion').stringOr(list.apiVersion) !== list.apiVersion) {
      return readObject(root, document, rules);
    }
    const items = root.get('items').items();
    return items.flatMap((item) => {
      const kind = item.get('kind');
      if (LISTS.has(kind.value)) throw kind.wrong('a list inside a list is not read');
      return readObject(item, document, rules, list.itemKind);
    });
  } catch (error) {
    if (error instanceof FieldError) return [{ status: 'unknown', problem: placed(error.problem, document, '') }];
    throw error;
  }
}

function readObject(
  { value, path: at }: Field,
  document: ParsedDocument,
  rules: FileRules,
  itemKind?: Kind,
): ManifestObject[] {
  try {
    const mistake = mistakenKind(value);
    const identity = objectIdentity(mistake === undefined ? value : mistake.meant, itemKind);
    if (identity === undefined) return [{ status: 'unused', kind: Field.root(value).get('kind').string() }];
    const decoded: Decoded<KubernetesObject> =
      mistake === undefined
        ? decodeObject(value, identity.kind, rules)
        : { status: 'invalid', problem: mistake.problem };
    const place = (problem: Problem) => placed(problem, document, at);
    const problems = problemsOf(decoded).map(place);
    // Of what is meant for others, nothing has an effect.
    const isRead = decoded.status !== 'skipped' || problems.length > 0;
    const withoutEffect = isRead ? partsWithoutEffect(value, identity.kind).map(place) : [];
    return [{ status: 'known', ...identity, at, decoded, problems, withoutEffect }];
  } catch (error) {
    if (error instanceof FieldError) return [{ status: 'unknown', problem: placed(error.problem, document, at) }];
    throw error;
  }
}

function problemsOf(decoded: Decoded<unknown>): readonly Problem[] {
  if (decoded.status === 'ok') return decoded.warnings;
  return decoded.problem === undefined ? [] : [decoded.problem];
}

/** The line is looked up at once, so that no syntax tree is kept. */
function placed(problem: Problem, { lineOf }: ParsedDocument, at: string): PlacedProblem {
  const path = at === '' || problem.field === '' ? at + problem.field : `${at}.${problem.field}`;
  // `items[3].metadata.labels[a/b]`, as `Field.path` writes it.
  const steps = [...path.matchAll(/\[([^\]]*)\]|[^.[]+/g)].map(([step, bracketed]) => bracketed ?? step);
  return { ...problem, path, line: lineOf(steps) };
}
