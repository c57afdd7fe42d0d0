import type { Decoded } from '../kubernetes/objects/decoded.ts';
import {
  decodeObject,
  type Kind,
  type KubernetesObject,
  objectIdentity,
} from '../kubernetes/objects/kubernetes-object.ts';
import type { ServiceKey } from '../model/service.ts';
import { Field, FieldError, type Problem } from '../util/untrusted.ts';
import { type ParsedDocument, parseDocuments } from './parse.ts';

/** Whose `field` is within its object. */
export interface PlacedProblem extends Problem {
  /** The way to the field from the document's root. */
  readonly path: string;
  /** From the line that the document begins on to the one where the field is written, or else what it is missing in. */
  readonly linesBelow: number;
}

/** One object of a document, of a kind that this proxy reads or may be of one. */
export type ManifestObject =
  | {
      readonly status: 'known';
      readonly kind: Kind;
      readonly key: ServiceKey;
      /** As `items[3]` inside a list; empty for an object that is the document. */
      readonly at: string;
      readonly decoded: Decoded<KubernetesObject>;
      /** What is wrong with it: all of it, or parts that were left out. */
      readonly problems: readonly PlacedProblem[];
    }
  | { readonly status: 'unknown'; readonly problem: PlacedProblem };

export interface ManifestDocument {
  /** Where its content begins, from 1, in the text that was given. */
  readonly line: number;
  readonly objects: readonly ManifestObject[];
}

const LISTS: ReadonlyMap<unknown, { readonly apiVersion: string; readonly itemKind?: Kind }> = new Map([
  ['List', { apiVersion: 'v1' }],
  ['ServiceList', { apiVersion: 'v1', itemKind: 'Service' as const }],
  ['EndpointsList', { apiVersion: 'v1', itemKind: 'Endpoints' as const }],
  ['EndpointSliceList', { apiVersion: 'discovery.k8s.io/v1', itemKind: 'EndpointSlice' as const }],
]);

/** Parses and decodes a piece of a manifest file. Throws {@link ManifestSyntaxError}. */
export function readDocuments(text: string): ManifestDocument[] {
  return parseDocuments(text)
    .filter(({ value }) => value !== null)
    .map((document) => ({ line: document.lineOf([]), objects: readObjects(document) }));
}

function readObjects(document: ParsedDocument): ManifestObject[] {
  const { value } = document;
  try {
    const root = Field.root(value);
    const list = LISTS.get(root.get('kind').value);
    if (list === undefined || root.get('apiVersion').stringOr(list.apiVersion) !== list.apiVersion) {
      return readObject(value, { document, at: '' });
    }
    return root
      .get('items')
      .items()
      .flatMap((item) => {
        const kind = item.get('kind');
        if (LISTS.has(kind.value)) throw kind.wrong('a list inside a list is not read');
        return readObject(item.value, { document, at: item.path, itemKind: list.itemKind });
      });
  } catch (error) {
    if (error instanceof FieldError) return [{ status: 'unknown', problem: placed(error.problem, document, '') }];
    throw error;
  }
}

function readObject(
  object: unknown,
  {
    document,
    at,
    itemKind,
  }: { readonly document: ParsedDocument; readonly at: string; readonly itemKind?: Kind | undefined },
): ManifestObject[] {
  const identity = objectIdentity(object, itemKind);
  switch (identity.status) {
    case 'foreign':
      return [];
    case 'unknown':
      return [{ status: 'unknown', problem: placed(identity.problem, document, at) }];
    case 'known': {
      const { kind, key } = identity;
      const decoded = decodeObject(object, kind);
      const problems = problemsOf(decoded).map((problem) => placed(problem, document, at));
      return [{ status: 'known', kind, key, at, decoded, problems }];
    }
  }
}

function problemsOf(decoded: Decoded<unknown>): readonly Problem[] {
  switch (decoded.status) {
    case 'ok':
      return decoded.warnings;
    case 'invalid':
      return [decoded.problem];
    case 'skipped':
      return [];
  }
}

/** Asked for at once, and only of what is wrong: nothing is to hold on to syntax trees. */
function placed(problem: Problem, { lineOf }: ParsedDocument, at: string): PlacedProblem {
  const { field } = problem;
  const path = at === '' || field === '' ? at + field : `${at}.${field}`;
  return { ...problem, path, linesBelow: lineOf(stepsOf(path)) - lineOf([]) };
}

/** `items[3].metadata.labels[a/b]`, as {@link Field.path} writes it, step by step. */
function stepsOf(path: string): string[] {
  return [...path.matchAll(/\[([^\]]*)\]|[^.[]+/g)].map(([step, bracketed]) => bracketed ?? step);
}
