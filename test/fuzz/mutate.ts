import { DocumentError, parseDocuments } from '../../src/util/yaml.ts';
import type { Draws } from '../support/draws.ts';

/** Ends a line, a quote or a field wherever it gets to, or is nearly something else. */
const HOSTILE_TEXTS = [
  ...['', ' ', '\n', '\r\n', '\t', '\0', '\x1b[2J', '\x9b1m', '\u2028', '\u202e', '\ud800', 'ſ', '１', '"', "'", '\\'],
  ...['\n-A INPUT -j ACCEPT\n', '" -j ACCEPT', '; reboot', '$(reboot)', '../../etc/shadow', '%0a', '%', '<img src=x>'],
  ...['__proto__', 'constructor', 'hasOwnProperty', 'None', 'null', 'true', '0', '-1', '65536', '1e3', '0x50', '080'],
  ...['0.0.0.0', '255.255.255.255', '127.0.0.1', '10.0.0.01', '10.1', '10.0.0.1/33', '10.0.0.1/', '0.0.0.0/0', '::/0'],
  ...[
    '::',
    '::1',
    'fe80::1%eth0',
    '::ffff:10.0.0.1',
    'FD00::A',
    '[::1]',
    '169.254.169.254',
    '2001:db8::/129',
    '10.0.0.1',
  ],
  ...['fd00::1', 'TCP', 'UDP', 'SCTP', 'Local', 'IPv4', 'IPv6', 'a', 'A', '-a', 'a-', 'a.b', 'a/b', 'a:b', 'a b'],
  ...['a'.repeat(64), 'a'.repeat(254), 'a.'.repeat(127), 'x'.repeat(5_000), '9'.repeat(400), '[', '{', '&a *a', '!!x'],
] as const;

const HOSTILE_NUMBERS = [0, -0, 1, -1, 1.5, 80, 9, 30_080, 65_535, 65_536, 2 ** 31, 2 ** 32, 2 ** 53, 1e21, 1e308];

const HOSTILE_OTHERS = [
  ...[null, true, false, [], {}, [null], [[]], [{}], { a: 1 }, nested(200), Array.from({ length: 300 }, () => 'x')],
];

function nested(depth: number): unknown {
  return depth === 0 ? [] : { a: nested(depth - 1) };
}

/** A copy in which one part is another one, missing, or there twice. */
export function mutateValue(root: unknown, draws: Draws): unknown {
  const copy = structuredClone({ root });
  const [at, key] = draws.pick(partsOf(copy));
  const value = at[key];
  switch (draws.below(6)) {
    case 0:
      if (Array.isArray(at)) at.splice(Number(key), 1);
      else delete at[key];
      break;
    case 1:
      if (Array.isArray(at)) at.push(value);
      else Object.defineProperty(at, draws.pick(HOSTILE_TEXTS), { value, enumerable: true, configurable: true });
      break;
    case 2:
      if (typeof value === 'number') at[key] = value + draws.pick([-1, 1, 0.5, 256, 65_536]);
      else if (typeof value === 'string') at[key] = mutateText(Buffer.from(value), [], draws).toString();
      else if (value instanceof Uint8Array) at[key] = new Uint8Array(mutateText(Buffer.from(value), [], draws));
      break;
    case 3:
      at[key] = structuredClone(draws.pick(partsOf(copy.root ?? {}).map(([parent, name]) => parent[name])));
      break;
    default:
      at[key] = structuredClone(hostileFor(value, draws));
  }
  return copy.root ?? null;
}

/** Mostly of the same type, because what is of another type gets nowhere. */
function hostileFor(value: unknown, draws: Draws): unknown {
  if (draws.once(3)) return draws.pick([...HOSTILE_TEXTS, ...HOSTILE_NUMBERS, ...HOSTILE_OTHERS]);
  if (typeof value === 'string') return draws.pick(HOSTILE_TEXTS);
  if (value instanceof Uint8Array) return new Uint8Array(draws.pick([0, 1, 16, 70_000]));
  return draws.pick<unknown>(typeof value === 'number' ? HOSTILE_NUMBERS : HOSTILE_OTHERS);
}

type Part = readonly [parent: Record<string, unknown>, key: string];

/** Every part of an object, however deep. */
function partsOf(parent: object, found: Part[] = []): readonly Part[] {
  for (const [key, value] of Object.entries(parent)) {
    found.push([parent as Record<string, unknown>, key]);
    if (typeof value === 'object' && value !== null && !ArrayBuffer.isView(value)) partsOf(value, found);
  }
  return found;
}

/** A copy with some bytes changed, cut out or put in, or parts of `others`. */
export function mutateText(text: Buffer, others: readonly Buffer[], draws: Draws): Buffer {
  const at = draws.below(text.length + 1);
  const end = Math.min(text.length, at + draws.below(draws.once(3) ? 400 : 8));
  const replaced = (by: Uint8Array, until = end) => Buffer.concat([text.subarray(0, at), by, text.subarray(until)]);
  switch (draws.below(6)) {
    case 0: {
      const changed = Buffer.from(text);
      if (at < changed.length) changed[at] = draws.below(256);
      return changed;
    }
    case 1:
      return replaced(Buffer.alloc(0));
    case 2:
      return replaced(text.subarray(at, end), at);
    case 3: {
      const other = others.length === 0 ? text : draws.pick(others);
      const from = draws.below(other.length + 1);
      return replaced(other.subarray(from, from + draws.below(400)));
    }
    default:
      return replaced(Buffer.from(draws.pick(HOSTILE_TEXTS)), draws.once(2) ? at : end);
  }
}

/** One of `known`, changed a few times. */
export function mutateOne(known: readonly Buffer[], draws: Draws): Buffer {
  let text = draws.pick(known);
  for (let count = 1 + draws.below(4); count > 0; count--) text = mutateText(text, known, draws);
  return text;
}

/** The same for YAML: every other time a value of a document is another one, and it comes as JSON. */
export function mutateYaml(known: readonly Buffer[], draws: Draws): Buffer {
  if (draws.once(2)) return mutateOne(known, draws);
  try {
    // Without the parts that contain themselves, or are shared.
    const values: unknown[] = parseDocuments(draws.pick(known).toString()).map(({ value }) =>
      JSON.parse(JSON.stringify(value)),
    );
    for (let count = 1 + draws.below(3); count > 0 && values.length > 0; count--) {
      const at = draws.below(values.length);
      values[at] = mutateValue(values[at], draws);
    }
    return Buffer.from(values.map((value) => JSON.stringify(value)).join('\n---\n'));
  } catch (error) {
    if (!(error instanceof DocumentError || error instanceof TypeError)) throw error;
    return mutateOne(known, draws);
  }
}
