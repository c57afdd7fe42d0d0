/** One test of a JUnit report that was run. */
export interface TestResult {
  readonly name: string;
  readonly passed: boolean;
  readonly seconds: number;
  /** Its first words. */
  readonly failure: string;
}

/** What ran, in the order of the names; of tests that were left out nothing. */
export function parseJunit(xml: string): TestResult[] {
  const results: TestResult[] = [];
  for (const [, head = '', body = ''] of xml.matchAll(/<testcase\b([^>]*?)(?:\/>|>(.*?)<\/testcase>)/gs)) {
    const name = attribute(head, 'name');
    const status = attribute(head, 'status');
    if (!name.startsWith('[It] ') || status === 'skipped' || status === 'pending') continue;
    const failure = /<(?:failure|error)\b([^>]*)/s.exec(body)?.[1] ?? '';
    results.push({
      // All labels follow, those of the text once more.
      name: name.slice('[It] '.length).replace(/ \[[^\]]*\]$/, ''),
      passed: status === 'passed',
      seconds: Number(attribute(head, 'time')),
      failure: attribute(failure, 'message').replaceAll(/\s+/g, ' ').slice(0, 300),
    });
  }
  return results.sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** A table of all tests with a column for each proxy, failures first. */
export function resultTable(byProxy: ReadonlyMap<string, readonly TestResult[]>): string {
  const names = [...new Set([...byProxy.values()].flat().map(({ name }) => name))].sort();
  const rows = names.map((name) => {
    const cells = [...byProxy.values()].map((results) => {
      const found = results.find((result) => result.name === name);
      return found === undefined ? 'not run' : found.passed ? 'passed' : 'FAILED';
    });
    return { name, cells };
  });
  const isGood = ({ cells }: (typeof rows)[number]) => cells.every((cell) => cell === 'passed');
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  const counts = [...byProxy.values()].map((results) => {
    const passed = results.filter((result) => result.passed).length;
    return `${passed} of ${results.length} passed`;
  });
  return [
    line(['test', ...byProxy.keys()]),
    line(['---', ...[...byProxy.keys()].map(() => '---')]),
    line(['all', ...counts]),
    ...[...rows.filter((row) => !isGood(row)), ...rows.filter(isGood)].map(({ name, cells }) => line([name, ...cells])),
  ].join('\n');
}

function attribute(head: string, name: string): string {
  const text = new RegExp(`\\b${name}="([^"]*)"`).exec(head)?.[1] ?? '';
  return text.replaceAll(/&(?:#(\d+)|#x([0-9A-Fa-f]+)|(\w+));/g, (entity, decimal, hex, named) => {
    if (named !== undefined) return NAMED[named] ?? entity;
    return String.fromCodePoint(decimal === undefined ? Number.parseInt(hex, 16) : Number(decimal));
  });
}

const NAMED: Readonly<Record<string, string>> = { lt: '<', gt: '>', amp: '&', quot: '"', apos: "'" };
