import type { Decoded } from '../../api/decoded.ts';
import { Field, FieldError, type Problem } from '../../api/field.ts';
import { decodeObject, type Kind, type KubernetesObject, objectIdentity } from '../../api/kubernetes-object.ts';
import type { ServiceKey } from '../../model/service.ts';
import { parseDocuments } from './parse.ts';

/** One object of a document, of a kind that this proxy reads or may be of one. */
export type ManifestObject =
  | {
      readonly status: 'known';
      readonly kind: Kind;
      readonly key: ServiceKey;
      /** As `items[3]` inside a list; empty for an object that is the document. */
      readonly at: string;
      readonly decoded: Decoded<KubernetesObject>;
    }
  | { readonly status: 'unknown'; readonly problem: Problem };

export interface ManifestDocument {
  /** From 1, in the text that was given. */
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
    .map(({ line, value }) => ({ line, objects: readObjects(value) }));
}

function readObjects(document: unknown): ManifestObject[] {
  try {
    const root = Field.root(document);
    const list = LISTS.get(root.get('kind').value);
    if (list === undefined || root.get('apiVersion').stringOr(list.apiVersion) !== list.apiVersion) {
      return readObject(document, { at: '' });
    }
    return root
      .get('items')
      .items()
      .flatMap((item) => {
        const kind = item.get('kind');
        if (LISTS.has(kind.value)) throw kind.wrong('a list inside a list is not read');
        return readObject(item.value, { at: item.path, itemKind: list.itemKind });
      });
  } catch (error) {
    if (error instanceof FieldError) return [{ status: 'unknown', problem: error.problem }];
    throw error;
  }
}

function readObject(
  object: unknown,
  { at, itemKind }: { readonly at: string; readonly itemKind?: Kind | undefined },
): ManifestObject[] {
  const identity = objectIdentity(object, itemKind);
  switch (identity.status) {
    case 'foreign':
      return [];
    case 'unknown':
      return [{ status: 'unknown', problem: { ...identity.problem, field: join(at, identity.problem.field) } }];
    case 'known': {
      const { kind, key } = identity;
      return [{ status: 'known', kind, key, at, decoded: decodeObject(object, kind) }];
    }
  }
}

/** The way to a field from the document's root. */
export function join(at: string, field: string): string {
  return at === '' || field === '' ? at + field : `${at}.${field}`;
}
