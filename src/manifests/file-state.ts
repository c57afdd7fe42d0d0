import { isDeepStrictEqual } from 'node:util';
import type { FileRules } from '../kubernetes/objects/decoded.ts';
import { encodeObject } from '../kubernetes/objects/encode.ts';
import { decodeSaved, isPresent, type Kind } from '../kubernetes/objects/kubernetes-object.ts';
import { type Finding, findingOf } from '../model/finding.ts';
import type { SavedObject } from '../model/saved-object.ts';
import type { ServiceKey } from '../model/service.ts';
import type { SourceEvent, Unusable } from '../model/source.ts';
import { foundText } from '../util/found.ts';
import { type LogFields, plainFields } from '../util/log.ts';
import { listed } from '../util/text.ts';
import type { KnownPieces, ManifestObject, Piece, PlacedProblem, Reading } from './read-manifest.ts';

/** Kind and key of an object, as people write it: `Service "shop/web"`. */
export type ObjectId = `${Kind} "${ServiceKey}"`;

export function serviceIdOf(key: ServiceKey): ObjectId {
  return `Service "${key}"`;
}

/** `undefined` for an object of another kind. */
export function serviceKeyOf(id: ObjectId): ServiceKey | undefined {
  const [, key] = /^Service "(.*)"$/.exec(id) ?? [];
  return key as ServiceKey | undefined;
}

export interface Report {
  readonly level: 'error' | 'warn' | 'info';
  readonly message: string;
  readonly fields: LogFields;
}

/** The objects that a manifest file names, be they valid or not; each once. */
export interface FileState {
  readonly objects: readonly FileObject[];
  /** The faults that have been reported. Faults with the same key are the same. */
  readonly faults: ReadonlyMap<string, Fault>;
  /** Kinds of objects that it has, and that no proxy reads: "Deployment, ConfigMap". Absent: none. */
  readonly unusedKinds?: string;
}

export interface FileObject {
  readonly id: ObjectId;
  /** Its last good state, if there is one. `value` is `undefined` for an object that is there and not to be served. */
  readonly event: SourceEvent | undefined;
  readonly file: string;
  /** Where it is in the file, or was while the file named it. */
  readonly document: number;
  /** Of the document. */
  readonly line: number;
  /** As `items[3]` inside a list. */
  readonly field: string | undefined;
  /** What says its state and nothing else. */
  readonly piece: Piece | undefined;
}

interface Fault {
  readonly subject: ObjectId | typeof THE_FILE;
  readonly report: Report;
}

const THE_FILE = 'the file';

export const NO_FILE: FileState = { objects: [], faults: new Map() };

const SHOWN_KINDS = 5;

/** What need not be parsed again. */
export function knownPieces({ objects }: FileState): KnownPieces {
  return new Map(objects.flatMap(({ piece }) => (piece === undefined ? [] : [[piece.digest, piece] as const])));
}

/** All that is served of these files, for {@link lastGoodStates} of another process. */
export function* savedObjects(states: Iterable<FileState>): Generator<SavedObject> {
  for (const { objects } of states) {
    for (const { event, file, document, line, field } of objects) {
      if (event === undefined || !isPresent(event)) continue;
      yield { object: encodeObject(event), at: { file, document, line, ...(field !== undefined && { field }) } };
    }
  }
}

/** The states of files, by path, as {@link savedObjects} have said them. What cannot be used any more is left out. */
export function lastGoodStates(saved: Iterable<SavedObject>, rules: FileRules): ReadonlyMap<string, FileState> {
  const objects = new Map<string, FileObject[]>();
  for (const { object, at } of saved) {
    const event = decodeSaved(object, rules);
    if (at === undefined || event === undefined) continue;
    const { file, document, line, field } = at;
    const known = objects.get(file) ?? [];
    known.push({ id: `${event.kind} "${event.key}"`, event, file, document, line, field, piece: undefined });
    objects.set(file, known);
  }
  return new Map([...objects].map(([file, known]) => [file, { ...NO_FILE, objects: known }]));
}

/** Whether the reading leaves something open that an earlier state may fill. */
export function needsLastGood(reading: Reading): boolean {
  if (reading.status === 'unusable') return true;
  const isOpen = (each: ManifestObject) =>
    each.status === 'unknown' || (each.status === 'known' && each.decoded.status === 'invalid');
  return reading.documents.some(({ objects }) => objects.some(isOpen));
}

/**
 * The state of a file after one more reading, and what to report. Whatever cannot be used keeps its last good state:
 * - the file as a whole when it cannot be read or parsed;
 * - else each bad object by itself;
 * - while a document does not say which object it is, it may be any object that is missing, so these stay too.
 */
export function nextFileState(
  file: string,
  before: FileState,
  reading: Reading,
): { readonly state: FileState; readonly reports: readonly Report[] } {
  const state = reading.status === 'read' ? read(file, before, reading) : unusable(file, before, reading);
  const news = [...state.faults].filter(([key]) => !before.faults.has(key)).map(([, { report }]) => report);
  return { state, reports: [...news, ...repaired(file, before, state), ...unusedKinds(file, before, state)] };
}

/** The objects that have a state to serve. */
export function servedOf({ objects }: FileState): readonly ObjectId[] {
  return objects.flatMap(({ id, event }) => (event?.value === undefined ? [] : [id]));
}

/** The parts of the file that cannot be used, without objects that are `served` all the same. */
export function* unusableOf(
  file: string,
  state: FileState,
  served: { has(id: ObjectId): boolean },
): Generator<Unusable> {
  for (const { subject, report } of state.faults.values()) {
    const { level, fields } = report;
    // The others cost no object, or one that is not to be served.
    if (level !== 'error') continue;
    const { line, err: said } = plainFields(fields);
    const [place, err] = [line === undefined ? file : `${file}:${line}`, String(said)];
    if (subject === THE_FILE) yield { subject: file, usable: servedOf(state), place, err };
    else if (!served.has(subject)) yield { subject, usable: [], place, err };
  }
}

/** What of the file cannot be used: a warning where a last good state is served in its place. */
export function* findingsOf(state: FileState, served: { has(id: ObjectId): boolean }): Generator<Finding> {
  for (const { subject, report } of state.faults.values()) {
    const { level, message, fields } = report;
    if (level !== 'error') continue;
    const isServed = subject === THE_FILE ? servedOf(state).length > 0 : served.has(subject);
    yield findingOf(isServed ? 'warn' : 'fail', message, fields);
  }
}

function unusable(
  file: string,
  before: FileState,
  { err, document, line }: Extract<Reading, { status: 'unusable' }>,
): FileState {
  const faults = new Map([...before.faults].filter(([, { subject }]) => subject !== THE_FILE));
  const rest = servedOf(before).length > 0 ? 'its last good state is kept' : 'nothing of it is served';
  const message = `A manifest file cannot be used; ${rest}`;
  const report: Report = { level: 'error', message, fields: { file, document, line, err } };
  return { ...before, faults: faults.set(JSON.stringify([err, line]), { subject: THE_FILE, report }) };
}

function read(file: string, before: FileState, { documents }: Extract<Reading, { status: 'read' }>): FileState {
  const kept = new Map(before.objects.filter(({ event }) => event !== undefined).map((each) => [each.id, each]));
  const objects = new Map<ObjectId, FileObject>();
  const valid = new Set<ObjectId>();
  const faults = new Map<string, Fault>();
  const placed = documents.flatMap(({ objects: found, document, line, piece }) => {
    return found.map((object) => ({ object, document, line, piece }));
  });
  for (const { object, document, line, piece } of placed) {
    for (const [key, fault] of faultsOf({ file, document }, object, kept)) faults.set(key, fault);
    if (object.status !== 'known') continue;
    const { kind, key, at, decoded } = object;
    const id: ObjectId = `${kind} "${key}"`;
    const field = at || undefined;
    const isValid = decoded.status !== 'invalid';
    if (isValid && valid.has(id)) {
      const message = `${id} is in a manifest file twice; the first one counts`;
      faults.set(`${id} twice`, {
        subject: id,
        report: { level: 'warn', message, fields: { file, document, line, field } },
      });
    } else if (isValid || !objects.has(id)) {
      const event = stateOf(object, kept.get(id)?.event);
      objects.set(id, { id, event, file, document, line, field, piece });
    }
    if (isValid) valid.add(id);
  }
  const isComplete = placed.every(({ object }) => object.status !== 'unknown');
  const unused = new Set(placed.flatMap(({ object }) => (object.status === 'unused' ? object.kind : [])));
  const missing = isComplete ? [] : [...kept.values()].filter(({ id }) => !objects.has(id));
  return {
    // There may be thousands of small files: slice() drops spare capacity, and without faults they share the empty map.
    objects: [...missing, ...objects.values()].slice(),
    faults: faults.size === 0 ? NO_FILE.faults : faults,
    ...(unused.size > 0 && { unusedKinds: listed([...unused], SHOWN_KINDS) }),
  };
}

/** An equal state stays the same one, so that comparing it again is cheap. */
function stateOf(
  { kind, key, decoded }: Extract<ManifestObject, { status: 'known' }>,
  last: SourceEvent | undefined,
): SourceEvent | undefined {
  if (decoded.status === 'invalid') return last;
  const event = decoded.status === 'ok' ? decoded.value : { kind, key, value: undefined };
  return last !== undefined && isDeepStrictEqual(event, last) ? last : event;
}

function* faultsOf(
  place: { readonly file: string; readonly document: number },
  object: ManifestObject,
  kept: ReadonlyMap<ObjectId, FileObject>,
): Generator<[string, Fault]> {
  const fieldsOf = (problem: PlacedProblem): LogFields => {
    return { ...place, line: problem.line, field: problem.path, err: problem };
  };
  if (object.status === 'unknown') {
    const { path } = object.problem;
    const message = 'A manifest does not say which object it is; until it does, no object of its file is removed';
    const report: Report = { level: 'error', message, fields: fieldsOf(object.problem) };
    yield [JSON.stringify([place.document, path, foundText(object.problem)]), { subject: THE_FILE, report }];
    return;
  }
  if (object.status === 'unused' || object.problems.length + object.withoutEffect.length === 0) return;
  const id: ObjectId = `${object.kind} "${object.key}"`;
  const rest = kept.has(id) ? 'its last good state is kept' : 'it is left out';
  const message = {
    invalid: `${id} is not valid; ${rest}`,
    skipped: `${id} is not served`,
    ok: `A part of ${id} is left out`,
  }[object.decoded.status];
  const level = object.decoded.status === 'invalid' ? 'error' : 'warn';
  // Without the place: a fault whose document has moved is not a new fault.
  const keyOf = (problem: PlacedProblem) => JSON.stringify([id, problem.field, foundText(problem)]);
  for (const problem of object.problems) {
    yield [keyOf(problem), { subject: id, report: { level, message, fields: fieldsOf(problem) } }];
  }
  for (const problem of object.withoutEffect) {
    const report: Report = { level: 'warn', message: `A part of ${id} has no effect`, fields: fieldsOf(problem) };
    yield [keyOf(problem), { subject: id, report }];
  }
}

function unusedKinds(file: string, before: FileState, { unusedKinds: kinds }: FileState): Report[] {
  if (kinds === undefined || kinds === before.unusedKinds) return [];
  const message = 'A manifest file has objects of kinds that the proxy does not use';
  return [{ level: 'info', message, fields: { file, kinds } }];
}

/** One report for each subject whose faults are all gone, unless the object itself is gone. */
function repaired(file: string, before: FileState, after: FileState): Report[] {
  const subjectsOf = ({ faults }: FileState) => new Set([...faults.values()].map(({ subject }) => subject));
  const standing = subjectsOf(after);
  const there = new Set<Fault['subject']>([THE_FILE, ...after.objects.map(({ id }) => id)]);
  return [...subjectsOf(before)].flatMap((subject) => {
    if (standing.has(subject) || !there.has(subject)) return [];
    const message = subject === THE_FILE ? 'A manifest file is valid again' : `${subject} is valid again`;
    return [{ level: 'info', message, fields: { file } }];
  });
}
