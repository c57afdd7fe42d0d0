import assert from 'node:assert/strict';
import { test } from 'node:test';
import { IdleCores } from '../../src/kernel/idle-cores.ts';

/** As /proc/stat begins: user, nice, system, idle, waits for disks, and more. */
const stat = (idle: number, waiting: number) => `cpu  1500 20 700 ${idle} ${waiting} 0 30 0 0 0\ncpu0 7 7 7 7 7 7 7\n`;

test('what two looks say of the time between them', () => {
  let text = stat(1000, 50);
  let reads = 0;
  const idle = new IdleCores(() => {
    reads++;
    return text;
  });
  assert.equal(idle.at(0, 1000), 0, 'the first look says nothing');
  text = stat(1020, 60);
  assert.equal(idle.at(200, 1000), 1.5);
  text = stat(2000, 60);
  assert.equal(idle.at(250, 1000), 1.5, 'too early for a look');
  assert.equal(reads, 2);
  assert.equal(idle.at(5000, 1000), 0, 'long ago');
  text = stat(2000, 60);
  assert.equal(idle.at(5100, 1000), 0, 'busy');
});

test('where it cannot be read, no core is idle', () => {
  let fails = false;
  const idle = new IdleCores(() => {
    if (fails) throw new Error('EMFILE');
    return stat(1000, 50);
  });
  idle.at(0, 1000);
  fails = true;
  assert.equal(idle.at(200, 1000), 0);
});

test('the machine itself can be asked', () => {
  const idle = new IdleCores();
  idle.at(0, 1000);
  assert.ok(Number.isFinite(idle.at(500, 1000)));
});
