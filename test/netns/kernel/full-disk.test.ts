import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { metric, TCP, testEnvironment } from '../harness.ts';
import { waitFor } from '../wait.ts';

describe('a full disk below all that the program writes', () => {
  const environment = testEnvironment('fresh');
  let disk: string;

  before(() => {
    disk = mkdtempSync(join(tmpdir(), 'full-disk-'));
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${256 << 10}`, 'none', disk]);
  });
  after(() => {
    execFileSync('umount', ['--lazy', disk]);
    rmSync(disk, { recursive: true });
  });

  const log = () => readFileSync(join(disk, 'log'), 'utf8');

  /** Its log, its connection log, and `/run`, where programs keep sockets and locks, are on that disk. */
  const start = () =>
    environment.startProxy({
      args: ['--connection-log', join(disk, 'connections.log')],
      env: { TMPDIR: disk },
      through: ['sh', '-c', `mount --bind ${disk} /run && exec "$@" 2>>${disk}/log`, 'sh'],
    });

  /** To the last byte. */
  const fill = () => {
    for (const bytes of [4096, 1]) {
      try {
        for (;;) appendFileSync(join(disk, 'filler'), Buffer.alloc(bytes));
      } catch (error) {
        assert.equal((error as NodeJS.ErrnoException).code, 'ENOSPC');
      }
    }
  };

  const lostLines = async () => metric(await environment.metricsText(), 'userspace_proxy_log_lines_dropped_total');

  test('Services are served, change, and survive a restart; lost lines are counted, and come again when there is room', async () => {
    await start();
    const web = await environment.serve({ name: 'web' });
    const load = await environment.client.call('startLoad', { ...web, concurrency: 4 });
    fill();
    const broken = 'apiVersion: v1\nkind: [broken';
    // The last page of the log may still have room.
    await waitFor('a line of the log to be lost', async () => {
      environment.manifests.write(`broken-${environment.number()}.yaml`, broken);
      return (await lostLines()) > 0;
    });
    const late = await environment.serve({ name: 'late' });
    assert.match((await environment.client.call('request', late)).name, /^pod-/);
    environment.manifests.remove('late.yaml');
    await environment.waitForRules(late.host, 0);
    await waitFor('more traffic', async () => {
      const { names } = await environment.client.call('loadSoFar', { load });
      return Object.values(names).reduce((sum, count) => sum + count, 0) > 100;
    });
    assert.deepEqual((await environment.client.call('stopLoad', { load })).failures, {});

    assert.equal(await environment.proxy.stop(), 0);
    await start();
    const ports = [{ port: 80, target: TCP.name }];
    const later = await environment.serve({ name: 'later', ports });
    for (const service of [web, later]) {
      assert.match((await environment.client.call('request', service)).name, /^pod-/);
    }

    rmSync(join(disk, 'filler'));
    environment.manifests.write('mended.yaml', broken);
    await waitFor('a line about it', () => log().includes('mended.yaml'));
    await environment.client.call('request', web);
    await waitFor('an entry of the connection log', () =>
      readFileSync(join(disk, 'connections.log'), 'utf8').includes('"test/web"'),
    );
  });
});

describe('a full disk below the connection log', () => {
  const environment = testEnvironment();
  let disk: string;

  before(async () => {
    disk = mkdtempSync(join(tmpdir(), 'full-disk-'));
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${16 << 10}`, 'none', disk]);
    await environment.startProxy({ args: ['--connection-log', join(disk, 'connections.log')] });
  });
  after(() => {
    execFileSync('umount', ['--lazy', disk]);
    rmSync(disk, { recursive: true });
  });

  test('every entry is a whole line when there is room again; the log tells when it begins and ends', async () => {
    const web = await environment.serve({ name: 'web' });
    const told = (msg: RegExp) => environment.proxy.log.filter((line) => msg.test(line.msg));
    let asked = 0;
    await waitFor('the disk to be full', async () => {
      await environment.client.call('requests', { ...web, count: 20 });
      asked += 20;
      return told(/^Cannot write the connection log/).length > 0;
    });
    execFileSync('mount', ['-o', `remount,size=${1 << 20}`, disk]);
    await waitFor('the end', () => told(/^The connection log is written again/).length > 0);
    const entries = () =>
      readFileSync(join(disk, 'connections.log'), 'utf8')
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line));
    await waitFor('all entries', () => entries().length === asked);
    assert.equal(told(/^Cannot write the connection log/).length, 1);
  });
});
