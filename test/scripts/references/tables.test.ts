import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { callNames } from '../../../scripts/references/calls.ts';
import { flagTables } from '../../../scripts/references/flags.ts';
import { metricTables } from '../../../scripts/references/metrics.ts';
import { code, filled, table, words } from '../../../scripts/references/table.ts';

describe('a table', () => {
  test('shows what would be Markdown as it is', () => {
    assert.equal(
      table(['a', 'b'], [[code('x|y'), words('<error> in *.yaml')]]),
      '| a | b |\n| --- | --- |\n| `x\\|y` | \\<error> in \\*.yaml |',
    );
  });
});

test('a text is filled to lines of 120 columns', () => {
  const word = 'x'.repeat(59);
  assert.equal(filled(`${word} ${word} y z`), `${word} ${word}\ny z`);
  assert.equal(filled(`${word} ${word}y z`), `${word} ${word}y\nz`);
});

describe('the references', () => {
  const line = (text = '', start = '') => text.split('\n').find((row) => row.startsWith(start));

  test('have a row for each flag, and for fields that have none', () => {
    const { flags, 'accepted-flags': accepted } = flagTables();
    assert.match(
      line(flags, '| `-v`') ?? '',
      /^\| `-v` \| `0` \| `logging\.verbosity` \(the flag wins\) \| log verbosity/,
    );
    assert.match(line(flags, '| `--config`') ?? '', /^\| `--config` \| none \| {2}\| KubeProxyConfiguration/);
    assert.equal(line(accepted, '| `--ipvs-sync'), '| `--ipvs-sync-period` | `30s` | `ipvs.syncPeriod` | ipvs mode |');
    assert.equal(line(accepted, '|  | `1s`'), '|  | `1s` | `nftables.minSyncPeriod` | nftables mode |');
  });

  test('have each function of libc once, whichever threads call it', () => {
    const names = (callNames()['calls'] ?? '').split(/,\s/);
    assert.deepEqual([names.at(0), names.at(-1)], ['`_exit`', '`write`']);
    assert.deepEqual(
      names.filter((name) => ['`malloc_trim`', '`send`', '`splice`'].includes(name)),
      ['`malloc_trim`', '`send`', '`splice`'],
    );
  });

  test('have the help as it is printed', () => {
    const text = flagTables()['help'] ?? '';
    assert.match(text, /^```\nUsage: kube-userspace-proxy /);
    assert.match(text, /\S\n```$/);
  });

  test('have each metric under what it is about', () => {
    const tables = metricTables();
    const starts = Object.entries(tables).map(([section, text]) => [section, text.split('\n')[2]?.split('`')[1]]);
    assert.deepEqual(starts, [
      ['kube-proxy', 'rest_client_requests_total'],
      ['service-ports', 'userspace_proxy_connections_total'],
      ['endpoints', 'userspace_proxy_endpoint_connections_total'],
      ['process', 'userspace_proxy_rules_left_out'],
    ]);
    assert.match(
      line(tables['kube-proxy'], '| `rest_client_requests') ?? '',
      /\| counter \| `code`, `method`, `host` \|/,
    );
    assert.match(tables['process'] ?? '', /\| `nodejs_gc_duration_seconds` \| histogram \| `kind` \| Time of /);
    assert.match(tables['service-ports'] ?? '', /`protocol`, `reason` \| Connects to an endpoint that failed/);
    assert.match(tables['endpoints'] ?? '', /`endpoint`, `reason` \| Connects to this endpoint that failed/);
  });
});
