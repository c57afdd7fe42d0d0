import { align, type Line } from '../table.ts';
import type { ScaleResult } from './measure.ts';

interface ScaleRow {
  readonly label: string;
  readonly unit: string;
  readonly key: keyof ScaleResult;
  readonly decimals: number;
  /** Of kube-proxy's userspace mode (1.20) at 1,000 and 5,000 Services, and of its iptables mode at 5,000. */
  readonly published?: readonly [thousand: string, fiveThousand: string, iptables: string];
}

/** kube-proxy 1.20 as measured on one such machine with a real etcd and kube-apiserver, two endpoints per Service. */
const ROWS: readonly ScaleRow[] = [
  {
    label: 'first full sync, from start',
    unit: 'ms',
    key: 'syncFromStartMs',
    decimals: 0,
    published: ['13,000', '240,000', '5,700'],
  },
  { label: 'first full sync, from lists', unit: 'ms', key: 'syncFromListsMs', decimals: 0 },
  { label: 'CPU meanwhile, proxy', unit: 'ms', key: 'syncProxyCpuMs', decimals: 0 },
  { label: 'CPU meanwhile, iptables', unit: 'ms', key: 'syncIptablesCpuMs', decimals: 0 },
  { label: 'loop delay meanwhile, p99', unit: 'ms', key: 'syncDelayP99Ms', decimals: 1 },
  { label: 'loop delay meanwhile, max', unit: 'ms', key: 'syncDelayMaxMs', decimals: 1 },
  {
    label: 'new Service reachable, p50',
    unit: 'ms',
    key: 'createdP50Ms',
    decimals: 0,
    published: ['', '88,000', '11,600'],
  },
  {
    label: 'new Service reachable, p99',
    unit: 'ms',
    key: 'createdP99Ms',
    decimals: 0,
    published: ['', '95,000', '12,000'],
  },
  { label: 'new endpoint effective, p50', unit: 'ms', key: 'movedP50Ms', decimals: 0 },
  { label: 'new endpoint effective, p99', unit: 'ms', key: 'movedP99Ms', decimals: 0 },
  { label: 'deleted Service closed, p50', unit: 'ms', key: 'deletedP50Ms', decimals: 0 },
  { label: 'deleted Service closed, p99', unit: 'ms', key: 'deletedP99Ms', decimals: 0 },
  { label: 'loop delay under changes, p99', unit: 'ms', key: 'churnDelayP99Ms', decimals: 1 },
  { label: 'loop delay under changes, max', unit: 'ms', key: 'churnDelayMaxMs', decimals: 1 },
  { label: 'CPU per change, proxy', unit: 'ms', key: 'proxyCpuMsPerChange', decimals: 2 },
  { label: 'CPU per change, iptables', unit: 'ms', key: 'iptablesCpuMsPerChange', decimals: 2 },
  {
    label: 'connect, first rule, p50',
    unit: 'ms',
    key: 'connectFirstP50Ms',
    decimals: 3,
    published: ['', '0.073', ''],
  },
  { label: 'connect, last rule, p50', unit: 'ms', key: 'connectLastP50Ms', decimals: 3, published: ['', '0.135', ''] },
  { label: 'connect, pod to pod, p50', unit: 'ms', key: 'connectDirectP50Ms', decimals: 3 },
  { label: 'repaired after a flush', unit: 'ms', key: 'repairMs', decimals: 0 },
  { label: 'RSS of the proxy', unit: 'MiB', key: 'rssMiB', decimals: 0, published: ['55', '108', '101'] },
  { label: 'RSS of the proxy, peak', unit: 'MiB', key: 'peakMiB', decimals: 0 },
  { label: 'RSS of the helper', unit: 'MiB', key: 'helperMiB', decimals: 0 },
  { label: 'PSS of both', unit: 'MiB', key: 'togetherMiB', decimals: 0 },
];

const PUBLISHED = ['userspace 1,000', 'userspace 5,000', 'iptables 5,000'];

/** One column for each result; kube-proxy's figures at the end. */
export function scaleTable(results: readonly ScaleResult[]): string {
  const lines: Line[] = [
    ['', '', ...results.map(({ services, means }) => `${figure(services, 0)} ${means}`), ...PUBLISHED],
    ...ROWS.map((row) => [
      row.label,
      row.unit,
      ...results.map((result) => cell(result, row)),
      ...(row.published ?? PUBLISHED.map(() => '')),
    ]),
  ];
  return align(lines);
}

function cell(result: ScaleResult, { key, decimals }: ScaleRow): string {
  const value = result[key];
  return typeof value === 'number' ? figure(value, decimals) : '–';
}

function figure(value: number, decimals: number): string {
  return value.toLocaleString('en-US', { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

const PLOT_WIDTH = 60;

/** A bar for what a change costs at each number of Services: flat, if the work is in proportion to the change. */
export function costPlot(results: readonly ScaleResult[]): string {
  const cost = (result: ScaleResult) => result.proxyCpuMsPerChange + result.iptablesCpuMsPerChange;
  const most = Math.max(...results.map(cost));
  const lines = results.map((result) => {
    const bar = '#'.repeat(Math.max(1, Math.round((PLOT_WIDTH * cost(result)) / most)));
    return [`${figure(result.services, 0)} ${result.means}`, bar, figure(cost(result), 2)];
  });
  return align([['CPU per change, proxy and iptables', '', 'ms'], ...lines]);
}
