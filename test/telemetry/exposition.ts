/** One sample of Prometheus' text format. */
export interface Sample {
  readonly name: string;
  readonly labels: ReadonlyMap<string, string>;
  readonly value: number;
}

export interface Family {
  readonly help: string;
  readonly type: string;
  readonly samples: readonly Sample[];
}

const NAME = '[a-zA-Z_:][a-zA-Z0-9_:]*';
const LABEL = /^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)/;
const VALUE = /^(?:[+-]?Inf|Nan|NaN|[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)$/;

/**
 * A strict reader of the text format, version 0.0.4: every family announced once by HELP and TYPE, its samples
 * together and under its name, no series twice, histogram buckets complete and cumulative. Throws on anything else.
 */
export function parseExposition(text: string): Map<string, Family> {
  if (!text.endsWith('\n')) throw new Error('the last line has no newline');
  const families = new Map<string, { help: string; type: string; samples: Sample[] }>();
  let current: { name: string; family: { help: string; type: string; samples: Sample[] } } | undefined;
  let help: { name: string; text: string } | undefined;
  const series = new Set<string>();

  for (const line of text.slice(0, -1).split('\n')) {
    const fail = (why: string): never => {
      throw new Error(`${why}: ${line}`);
    };
    if (line === '') continue;
    const helpLine = new RegExp(`^# HELP (${NAME}) (.+)$`).exec(line);
    if (helpLine) {
      help = { name: helpLine[1] ?? '', text: helpLine[2] ?? '' };
      continue;
    }
    const typeLine = new RegExp(`^# TYPE (${NAME}) (counter|gauge|histogram|summary)$`).exec(line);
    if (typeLine) {
      const name = typeLine[1] ?? '';
      if (help?.name !== name) fail('TYPE without its HELP just before');
      if (families.has(name)) fail('a family announced twice');
      current = { name, family: { help: help?.text ?? '', type: typeLine[2] ?? '', samples: [] } };
      families.set(name, current.family);
      continue;
    }
    const sampleLine = new RegExp(`^(${NAME})(?:\\{(.*)\\})? (\\S+)$`).exec(line);
    if (!sampleLine || !current) return fail('neither a comment nor a sample of a family');
    const [, name = '', labelText = '', valueText = ''] = sampleLine;
    if (!VALUE.test(valueText)) fail('not a number');
    const suffixes = current.family.type === 'histogram' ? ['_bucket', '_sum', '_count'] : [''];
    if (!suffixes.some((suffix) => name === `${current?.name}${suffix}`)) fail('a sample outside its family');
    const labels = new Map<string, string>();
    for (let rest = labelText; rest !== ''; ) {
      const match = LABEL.exec(rest) ?? fail('labels cannot be read');
      if (labels.has(match[1] ?? '')) fail('a label twice');
      labels.set(
        match[1] ?? '',
        (match[2] ?? '').replace(/\\(.)/g, (_, c) => (c === 'n' ? '\n' : c)),
      );
      rest = rest.slice(match[0].length);
    }
    const key = `${name}${JSON.stringify([...labels].sort())}`;
    if (series.has(key)) fail('a series twice');
    series.add(key);
    current.family.samples.push({ name, labels, value: Number(valueText.replace('Inf', 'Infinity')) });
  }
  for (const [name, family] of families) checkHistogram(name, family);
  return families;
}

function checkHistogram(name: string, { type, samples }: Family): void {
  if (type !== 'histogram' || samples.length === 0) return;
  const others = (sample: Sample) => JSON.stringify([...sample.labels].filter(([label]) => label !== 'le').sort());
  for (const [labels, group = []] of Map.groupBy(samples, others)) {
    const buckets = group.filter((sample) => sample.name === `${name}_bucket`);
    const bounds = buckets.map((bucket) => Number(bucket.labels.get('le')?.replace('Inf', 'Infinity')));
    const count = group.find((sample) => sample.name === `${name}_count`)?.value;
    const ascending = (numbers: number[]) => numbers.every((n, i) => i === 0 || n >= (numbers[i - 1] ?? n));
    if (bounds.at(-1) !== Number.POSITIVE_INFINITY || buckets.at(-1)?.value !== count) {
      throw new Error(`${name}${labels}: the last bucket is not +Inf with the count`);
    }
    if (!ascending(bounds) || !ascending(buckets.map((bucket) => bucket.value))) {
      throw new Error(`${name}${labels}: buckets are not cumulative`);
    }
  }
}
