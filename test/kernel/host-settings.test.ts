import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { conntrackNumbers, setKernelNumbers } from '../../src/kernel/host-settings.ts';
import type { ConntrackSettings } from '../../src/model/host-settings.ts';
import { RecordingLog } from '../fakes/recording-log.ts';

const NOTHING: ConntrackSettings = {
  maxPerCore: 0,
  min: 131_072,
  tcpEstablishedTimeoutMs: 0,
  tcpCloseWaitTimeoutMs: 0,
  tcpBeLiberal: false,
  udpTimeoutMs: 0,
  udpStreamTimeoutMs: 0,
};

function conntrackOf(conntrack: Partial<ConntrackSettings>, cores = 2) {
  return conntrackNumbers({ ...NOTHING, ...conntrack }, cores);
}

describe('the settings as kernel parameters', () => {
  test('zeros leave everything as it is', () => assert.deepEqual(conntrackOf({}), []));

  test('the limit of conntrack grows with the cores, within bounds, and its hash table with it', () => {
    const cases: readonly (readonly [maxPerCore: number, min: number, cores: number, entries: number])[] = [
      [32_768, 131_072, 2, 131_072],
      [32_768, 131_072, 8, 262_144],
      [32_768, 131_072, 96, 1_048_576],
      [32_768, 2_000_000, 96, 2_000_000],
      [1, 0, 3, 3],
    ];
    for (const [maxPerCore, min, cores, entries] of cases) {
      assert.deepEqual(conntrackOf({ maxPerCore, min }, cores), [
        { path: '/proc/sys/net/netfilter/nf_conntrack_max', value: entries, isFloor: true },
        { path: '/sys/module/nf_conntrack/parameters/hashsize', value: Math.floor(entries / 4), isFloor: true },
      ]);
    }
  });

  test('timeouts are whole seconds', () => {
    const timeouts = {
      tcpEstablishedTimeoutMs: 86_400_000,
      tcpCloseWaitTimeoutMs: 1_999,
      udpTimeoutMs: 3_000,
      udpStreamTimeoutMs: 4_000,
    };
    assert.deepEqual(conntrackOf({ ...timeouts, tcpBeLiberal: true }), [
      { path: '/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established', value: 86_400 },
      { path: '/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait', value: 1 },
      { path: '/proc/sys/net/netfilter/nf_conntrack_udp_timeout', value: 3 },
      { path: '/proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream', value: 4 },
      { path: '/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal', value: 1 },
    ]);
  });
});

describe('setting kernel parameters', () => {
  const directory = mkdtempSync(join(tmpdir(), 'kup-host-'));
  after(() => rmSync(directory, { recursive: true }));
  const fileWith = (name: string, text: string) => {
    writeFileSync(join(directory, name), text);
    return join(directory, name);
  };

  test('writes only numbers that differ, and never lowers one that is only a floor', () => {
    const log = new RecordingLog();
    const cases: readonly (readonly [text: string, isFloor: boolean, after: string])[] = [
      ['5\n', false, '5\n'],
      ['9\n', true, '9\n'],
      ['9\n', false, '5'],
      ['4\n', true, '5'],
    ];
    for (const [index, [text, isFloor, after]] of cases.entries()) {
      const path = fileWith(`number-${index}`, text);
      setKernelNumbers([{ path, value: 5, ...(isFloor && { isFloor }) }], log);
      assert.equal(readFileSync(path, 'utf8'), after);
    }
    assert.deepEqual(log.of('warn'), []);
  });

  test('one warning names all that the kernel refuses, and the rest is set', () => {
    const missing = join(directory, 'missing');
    mkdirSync(join(directory, 'folder'));
    const last = fileWith('last', '1');
    const log = new RecordingLog();
    setKernelNumbers(
      [
        { path: missing, value: 1 },
        { path: join(directory, 'folder'), value: 2 },
        { path: last, value: 3 },
      ],
      log,
    );
    assert.equal(readFileSync(last, 'utf8'), '3');
    const [warning, ...others] = log.of('warn');
    assert.deepEqual(others, []);
    assert.equal(warning?.fields['err'], `${missing}=1 (ENOENT), ${directory}/folder=2 (EISDIR)`);
  });

  test('the real oom_score_adj of a process, which anybody may raise', () => {
    const script = `
      import { setKernelNumbers } from ${JSON.stringify(new URL('../../src/kernel/host-settings.ts', import.meta.url).href)};
      import { readFileSync } from 'node:fs';
      const path = '/proc/self/oom_score_adj';
      const before = Number(readFileSync(path, 'utf8'));
      const log = { v: () => undefined, warn: (message, { err }) => console.log(err) };
      setKernelNumbers([{ path, value: Math.min(1000, before + 1) }], log);
      console.log(Number(readFileSync(path, 'utf8')) - Math.min(1000, before + 1));`;
    assert.equal(
      execFileSync(process.execPath, ['--input-type=module', '--eval', script], { encoding: 'utf8' }),
      '0\n',
    );
  });
});
