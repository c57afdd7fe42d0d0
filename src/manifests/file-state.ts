import { isDeepStrictEqual } from 'node:util';
import type { Decoded } from '../kubernetes/objects/decoded.ts';
import type { Kind, KubernetesObject } from '../kubernetes/objects/kubernetes-object.ts';
import type { ServiceKey } from '../model/service.ts';
import type { SourceEvent } from '../model/source.ts';
import type { LogFields } from '../util/log.ts';
import type { ManifestDocument, ManifestObject, PlacedProblem } from './objects.ts';
import type { Report } from './report.ts';

/** Kind and key of an object, as people write it: `Service "shop/web"`. */
export type ObjectId = `${Kind} "${ServiceKey}"`;

export function objectId({ kind, key }: { readonly kind: Kind; readonly key: ServiceKey }): ObjectId {
  return `${kind} "${key}"`;
}

/** What came of reading a manifest file. */
export type FileReading =
  | { readonly status: 'read'; readonly documents: readonly ManifestDocument[] }
  | {
      /** Nothing can be said of its objects: it cannot be opened, or does not parse. */
      readonly status: 'unusable';
      readonly err: string;
      /** Tells one broken content from another with the same error. */
      readonly content?: string;
      readonly document?: number;
      readonly line?: number;
    };

/** What a manifest file stands for, last good states included. */
export interface FileState {
  /** `value` is `undefined` for an object that is there and not to be served. */
  readonly objects: ReadonlyMap<ObjectId, SourceEvent>;
  /** What is wrong with it and has been reported, by what makes two of them the same. */
  readonly troubles: ReadonlyMap<string, Trouble>;
}

interface Trouble {
  readonly subject: ObjectId | typeof THE_FILE | typeof SOME_OBJECT;
  readonly report: Report;
}

const THE_FILE = 'the file';
const SOME_OBJECT = 'an object without identity';

const EMPTY: FileState = { objects: new Map(), troubles: new Map() };

/**
 * The state of a file after one more reading, and what to say of it. Whatever cannot be used keeps its last good state:
 * - the file as a whole when it cannot be read or parsed;
 * - else each bad object by itself;
 * - while a document does not say which object it is, it may be any of those that are missing, so these stay too.
 */
export function nextFileState(
  file: string,
  previous: FileState | undefined,
  reading: FileReading,
): { readonly state: FileState; readonly reports: readonly Report[] } {
  const before = previous ?? EMPTY;
  const after = reading.status === 'read' ? read(file, before, reading.documents) : unusable(file, before, reading);
  return { state: after, reports: [...newTroubles(before, after), ...mended(file, before, after)] };
}

function unusable(
  file: string,
  before: FileState,
  { err, content, document, line }: Extract<FileReading, { status: 'unusable' }>,
): FileState {
  const troubles = new Map([...before.troubles].filter(([, { subject }]) => subject !== THE_FILE));
  const message = 'A manifest file cannot be used; its last good state is kept';
  troubles.set(JSON.stringify([err, content]), {
    subject: THE_FILE,
    report: { level: 'error', message, fields: { file, document, line, err } },
  });
  return { objects: before.objects, troubles };
}

function read(file: string, before: FileState, documents: readonly ManifestDocument[]): FileState {
  const objects = new Map<ObjectId, SourceEvent>();
  const kept = new Map<ObjectId, SourceEvent>();
  const troubles = new Map<string, Trouble>();
  let someUnknown = false;

  for (const { object, place } of placed(file, documents)) {
    for (const [key, trouble] of troublesOf(object, place, before)) troubles.set(key, trouble);
    if (object.status === 'unknown') {
      someUnknown = true;
      continue;
    }
    const id = objectId(object);
    const last = before.objects.get(id);
    if (object.decoded.status === 'invalid') {
      if (last !== undefined) kept.set(id, last);
    } else if (objects.has(id)) {
      const message = `${id} is in a manifest file twice; the first one counts`;
      const fields = { ...place, field: object.at || undefined };
      troubles.set(`${id} twice`, { subject: id, report: { level: 'warn', message, fields } });
    } else {
      const event = eventOf(object.kind, object.key, object.decoded);
      objects.set(id, last !== undefined && isDeepStrictEqual(event, last) ? last : event);
    }
  }
  return { objects: new Map([...(someUnknown ? before.objects : []), ...kept, ...objects]), troubles };
}

function eventOf(kind: Kind, key: ServiceKey, decoded: Exclude<Decoded<KubernetesObject>, { status: 'invalid' }>) {
  return decoded.status === 'ok' ? decoded.value : { kind, key, value: undefined };
}

type Place = { readonly file: string; readonly document: number; readonly line: number };

function* placed(
  file: string,
  documents: readonly ManifestDocument[],
): Generator<{ readonly object: ManifestObject; readonly place: Place }> {
  for (const [index, { line, objects }] of documents.entries()) {
    for (const object of objects) yield { object, place: { file, document: index + 1, line } };
  }
}

function* troublesOf(object: ManifestObject, place: Place, before: FileState): Generator<[string, Trouble]> {
  if (object.status === 'unknown') {
    const { path, problem } = object.problem;
    const message = 'A manifest does not say which object it is; until it does, no object of its file is removed';
    const fields = fieldsOf(object.problem, place);
    yield [
      JSON.stringify([place.document, path, problem]),
      { subject: SOME_OBJECT, report: { level: 'error', message, fields } },
    ];
    return;
  }
  const id = objectId(object);
  const isInvalid = object.decoded.status === 'invalid';
  const rest = before.objects.has(id) ? 'its last good state is kept' : 'it is left out';
  const level = isInvalid ? 'error' : 'warn';
  const message = isInvalid ? `${id} is not valid; ${rest}` : `A part of ${id} is left out`;
  for (const problem of object.problems) {
    // Without the place: the same fault is not new because the document has moved.
    const key = JSON.stringify([id, problem.field, problem.problem]);
    yield [key, { subject: id, report: { level, message, fields: fieldsOf(problem, place) } }];
  }
}

function fieldsOf({ path, problem, linesBelow }: PlacedProblem, { file, document, line }: Place): LogFields {
  return { file, document, line: line + linesBelow, field: path, err: problem };
}

function newTroubles(before: FileState, after: FileState): Report[] {
  return [...after.troubles].filter(([key]) => !before.troubles.has(key)).map(([, { report }]) => report);
}

function mended(file: string, before: FileState, after: FileState): Report[] {
  const standing = subjectsOf(after);
  const gone = [...subjectsOf(before)].filter((subject) => !standing.has(subject));
  return gone.flatMap((subject): Report[] => {
    switch (subject) {
      case THE_FILE:
        return [{ level: 'info', message: 'A manifest file is valid again', fields: { file } }];
      case SOME_OBJECT:
        return [{ level: 'info', message: 'Every manifest of a file says again which object it is', fields: { file } }];
      default:
        return after.objects.has(subject)
          ? [{ level: 'info', message: `${subject} is valid again`, fields: { file } }]
          : [];
    }
  });
}

function subjectsOf({ troubles }: FileState): Set<Trouble['subject']> {
  return new Set([...troubles.values()].map(({ subject }) => subject));
}
