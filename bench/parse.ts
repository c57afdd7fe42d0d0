/** What one run of a load generator gave: figures by name, and what was not as it should be. */
export interface Result {
  readonly values: Readonly<Record<string, number>>;
  readonly complaints: readonly string[];
}

const GIBIBYTE = 2 ** 30;

/** `iperf3 --json`: what the receiver got. */
export function parseIperf3(text: string): Result {
  const report: unknown = JSON.parse(text);
  const error = field(report, 'error');
  if (typeof error === 'string') throw new Error(`iperf3: ${error}`);
  const received = field(field(report, 'end'), 'sum_received');
  return {
    values: {
      gbits: number(field(received, 'bits_per_second'), 'bits_per_second of iperf3') / 1e9,
      gibibytes: number(field(received, 'bytes'), 'bytes of iperf3') / GIBIBYTE,
    },
    complaints: [],
  };
}

const MICROSECONDS: Readonly<Record<string, number>> = { us: 1, ms: 1e3, s: 1e6, m: 60e6 };

/** `wrk --latency`: requests per second, p50 and p99 in microseconds. */
export function parseWrk(text: string): Result {
  const values = {
    perSecond: number(/^Requests\/sec:\s+([\d.]+)/m.exec(text)?.[1], 'Requests/sec of wrk'),
    p50: percentile(text, 50),
    p99: percentile(text, 99),
  };
  const broken = /^\s*Socket errors: (.*)$/m.exec(text)?.[1];
  const refused = /^\s*Non-2xx or 3xx responses: (\d+)/m.exec(text)?.[1];
  const complaints = [
    ...(broken === undefined ? [] : [`socket errors: ${broken}`]),
    ...(refused === undefined ? [] : [`${refused} responses that are errors`]),
  ];
  return { values, complaints };
}

function percentile(text: string, percent: number): number {
  const [, figure, unit] = new RegExp(`^\\s+${percent}%\\s+([\\d.]+)(us|ms|s|m)$`, 'm').exec(text) ?? [];
  return number(figure, `the ${percent}% line of wrk`) * MICROSECONDS[unit!]!;
}

/** The statistics at the end of dnsperf's output. */
export function parseDnsperf(text: string): Result {
  const perSecond = number(/Queries per second:\s+([\d.]+)/.exec(text)?.[1], 'Queries per second of dnsperf');
  const lost = number(/Queries lost:\s+(\d+)/.exec(text)?.[1], 'Queries lost of dnsperf');
  const codes = /Response codes:\s+(.*)$/m.exec(text)?.[1] ?? 'no response';
  const complaints = [
    ...(lost === 0 ? [] : [`${lost} queries lost`]),
    ...(/^NOERROR \d+ \(100\.00%\)$/.test(codes) ? [] : [`response codes: ${codes}`]),
  ];
  return { values: { perSecond }, complaints };
}

/** The line that stream-load.ts writes. */
export function parseStreamLoad(text: string): Result {
  const report: unknown = JSON.parse(text);
  const bytes = number(field(report, 'bytes'), 'bytes of stream-load');
  const seconds = number(field(report, 'seconds'), 'seconds of stream-load');
  return { values: { gbits: (bytes * 8) / seconds / 1e9, gibibytes: bytes / GIBIBYTE }, complaints: [] };
}

/** The line that udp-load.ts and dns-load.ts write. */
export function parseUdpLoad(text: string): Result {
  const report: unknown = JSON.parse(text);
  const lost = number(field(report, 'lost'), 'lost of the UDP load');
  const strange = number(field(report, 'strange'), 'strange of the UDP load');
  return {
    values: { perSecond: number(field(report, 'perSecond'), 'perSecond of the UDP load') },
    complaints: [
      ...(lost === 0 ? [] : [`${lost} datagrams lost`]),
      ...(strange === 0 ? [] : [`${strange} wrong answers`]),
    ],
  };
}

function field(of: unknown, name: string): unknown {
  return typeof of === 'object' && of !== null ? (of as Record<string, unknown>)[name] : undefined;
}

function number(value: unknown, what: string): number {
  const figure = typeof value === 'string' ? Number(value) : value;
  if (typeof figure !== 'number' || !Number.isFinite(figure)) throw new Error(`cannot read ${what}`);
  return figure;
}
