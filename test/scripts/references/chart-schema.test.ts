import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { readValues } from '../../../scripts/references/chart.ts';
import { type Schema, valuesSchema } from '../../../scripts/references/chart-schema.ts';
import { SETTINGS } from '../../../src/config/flags.ts';
import type { Setting } from '../../../src/config/setting.ts';
import { UsageError } from '../../../src/config/usage-error.ts';
import { isObject } from '../../../src/util/untrusted.ts';
import { RIGHT_VALUES, WRONG_VALUES } from '../../deploy/chart-values.ts';

const VALUES = new URL('../../../deploy/helm/kube-userspace-proxy/values.yaml', import.meta.url);
const SCHEMA = valuesSchema(readValues(readFileSync(VALUES, 'utf8')));

/** Texts as careful and careless people write them, for any field. */
const TEXTS = [
  '0 1 -1 -1000 1.5 always true iptables userspace rr json NodeCIDR eth0 docker0 30000-32767 30000+9 4Gi primary all',
  '0s 30s 1h15m30.918s .5s 1.s 100us 100µs -1s 250 /var/lib/x var/lib/x 10.0.0.0/8 10.0.0.0/33 ::/0 ::/129',
  '0.0.0.0 192.0.2.1:10256 0.0.0.0:65536 1.2.3 256.0.0.1 :: ::1 [::]:10256 [::] ::ffff:192.0.2.1 10.0.0.0/8,::/8 80',
]
  .flatMap((line) => line.split(' '))
  .concat('', 'a b', '30 s', 'x'.repeat(15), 'x'.repeat(16));

/** Of fields where the chart takes less than the program. */
const STRICTER: Readonly<Record<string, (text: string) => boolean>> = {
  hostnameOverride: () => true,
  'clientConnection.kubeconfig': (text) => !text.startsWith('/'),
  nodePortAddresses: (text) => text === '',
  'ipvs.excludeCIDRs': (text) => text === '',
};

describe('the schema of the chart', () => {
  test('knows these values and no others, and the fields that the program knows', () => {
    const text = 'image:\n  # -- where it is\n  anything: ""\n# -- fields\nconfig: {}\n';
    const { properties, additionalProperties } = valuesSchema(readValues(text));
    assert.equal(additionalProperties, false);
    assert.deepEqual(Object.keys(properties ?? {}).sort(), ['config', 'global', 'image']);
    const image = { anything: { type: 'string' } };
    assert.deepEqual(properties?.['image'], { type: 'object', properties: image, additionalProperties: false });
    const config = properties?.['config'];
    assert.equal(config?.additionalProperties, false);
    assert.deepEqual(config?.properties?.['iptables']?.properties?.['masqueradeAll'], { type: ['boolean', 'null'] });
  });

  test('takes its own defaults and what is right, and nothing that is wrong', () => {
    for (const { path, fallback } of readValues(readFileSync(VALUES, 'utf8'))) {
      assert.ok(accepts(at(path.join('.')), fallback), `${path.join('.')} ${JSON.stringify(fallback)}`);
    }
    for (const [values, isRight] of [
      [RIGHT_VALUES, true],
      [WRONG_VALUES, false],
    ] as const) {
      for (const [path, each] of Object.entries(values)) {
        for (const value of each) assert.equal(accepts(at(path), value), isRight, `${path} ${JSON.stringify(value)}`);
      }
    }
  });

  test('takes each text that the program takes', () => {
    let taken = 0;
    for (const setting of Object.values(SETTINGS)) {
      const { field } = setting;
      if (field === undefined) continue;
      const schema = at(`config.${field}`);
      // The schema knows one type for each field.
      const values = TEXTS.filter((text) => !STRICTER[field]?.(text))
        .flatMap((text) => [text, [text], Number(text), null])
        .filter((value) => !Number.isNaN(value) && isOfType(schema, value) && programTakes(setting, value));
      for (const value of values) assert.ok(accepts(schema, value), `${field} ${JSON.stringify(value)}`);
      taken += values.length;
    }
    assert.ok(taken > 500, `${taken} cases`);
  });
});

function programTakes({ read, parse, fallback }: Setting<unknown>, value: unknown): boolean {
  try {
    if (value !== null) parse(read(value) ?? fallback);
    return true;
  } catch (error) {
    if (error instanceof UsageError) return false;
    throw error;
  }
}

/** The part for a value; what it says of the items of a map or a list included. */
function at(path: string): Schema {
  const found = path.split('.').reduce<Schema | undefined>((schema, segment) => schema?.properties?.[segment], SCHEMA);
  assert.ok(found, `${path} is in the schema`);
  return found;
}

function isOfType({ type = [] }: Schema, value: unknown): boolean {
  const types = [type].flat();
  return (
    types.length === 0 || types.some((each) => each === typeOf(value) || (each === 'number' && typeof value === each))
  );
}

function typeOf(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  return Number.isInteger(value) ? 'integer' : typeof value;
}

/** As JSON Schema says, for as much of it as the schema uses. */
function accepts(schema: Schema, value: unknown): boolean {
  if (!isOfType(schema, value)) return false;
  const { enum: choices, pattern, not, minimum, maximum, items, properties = {}, required = [] } = schema;
  if (choices !== undefined && !choices.includes(value as string | null)) return false;
  if (typeof value === 'string' && pattern !== undefined && !new RegExp(pattern, 'u').test(value)) return false;
  if (not !== undefined && accepts(not, value)) return false;
  if (typeof value === 'number' && (value < (minimum ?? value) || value > (maximum ?? value))) return false;
  if (Array.isArray(value)) return items === undefined || value.every((item) => accepts(items, item));
  if (!isObject(value)) return true;
  if (required.some((key) => !(key in value))) return false;
  const { additionalProperties: others = true } = schema;
  return Object.entries(value).every(([key, below]) => {
    const known = properties[key];
    if (known !== undefined) return accepts(known, below);
    return typeof others === 'boolean' ? others : accepts(others, below);
  });
}
