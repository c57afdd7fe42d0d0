/** One sample of Prometheus' text format. */
export interface Sample {
  readonly name: string;
  readonly labels: ReadonlyMap<string, string>;
  readonly value: number;
}

export interface Family {
  readonly type: string;
  readonly samples: readonly Sample[];
}

const NAME = '[a-zA-Z_:][a-zA-Z0-9_:]*';
const HEAD = new RegExp(`^# HELP (?<help>${NAME}) .+\n# TYPE (?<name>${NAME}) (?<type>counter|gauge|histogram)\n`);
const SAMPLE = new RegExp(`^(${NAME})(?:\\{(.*)\\})? (\\S+)$`);
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)/gy;
const VALUE = /^(?:[+-]?Inf|Nan|NaN|[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)$/;

/**
 * A strict parser of the text format, version 0.0.4: each family has one HELP and one TYPE and then all its samples, no
 * series comes twice, histogram buckets are complete and cumulative. Throws on anything else.
 */
export function parseExposition(text: string): Map<string, Family> {
  if (!text.endsWith('\n')) throw new Error('the last line has no newline');
  const families = new Map<string, Family>();
  for (const block of text.split(/^(?=# HELP )/m)) {
    const head = HEAD.exec(block);
    const { help, name = '', type = '' } = head?.groups ?? {};
    if (head === null || help !== name) throw new Error(`HELP and TYPE of one family expected: ${block}`);
    if (families.has(name)) throw new Error(`a family announced twice: ${name}`);
    const lines = block.slice(head[0].length).split('\n');
    const samples = lines.filter((line) => line !== '').map(parseSample);
    const suffixes = type === 'histogram' ? ['_bucket', '_sum', '_count'] : [''];
    const stray = samples.find((sample) => !suffixes.some((suffix) => sample.name === name + suffix));
    if (stray) throw new Error(`a sample outside its family ${name}: ${stray.name}`);
    const series = samples.map((sample) => sample.name + JSON.stringify([...sample.labels].sort()));
    if (new Set(series).size < series.length) throw new Error(`a series twice: ${name}`);
    families.set(name, { type, samples });
  }
  for (const [name, family] of families) checkHistogram(name, family);
  return families;
}

function parseSample(line: string): Sample {
  const [, name, labelText = '', value = ''] = SAMPLE.exec(line) ?? [];
  if (name === undefined || !VALUE.test(value)) throw new Error(`not a sample: ${line}`);
  const found = [...labelText.matchAll(LABEL)];
  const labels = new Map(found.map(([, label = '', text = '']) => [label, unescaped(text)]));
  if (found.map(([whole]) => whole).join('') !== labelText || labels.size < found.length) {
    throw new Error(`labels cannot be read, or one comes twice: ${line}`);
  }
  return { name, labels, value: Number(value.replace('Inf', 'Infinity')) };
}

function unescaped(text: string): string {
  return text.replace(/\\(.)/g, (_, character) => (character === 'n' ? '\n' : character));
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
