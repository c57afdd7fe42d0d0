import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ApiHealth } from '../../src/kubernetes/api-health.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';

function createHealth() {
  const clock = new ManualClock();
  const log = new RecordingLog();
  const health = new ApiHealth({ server: () => 'api:6443', lastContactAt: () => 5, clock, log });
  const services = health.resource('Service');
  const slices = health.resource('EndpointSlice');
  const connect = () => {
    for (const resource of [services, slices]) {
      resource.listed();
      resource.following();
    }
  };
  return { clock, log, health, services, slices, connect };
}

test('it is connected once every resource is watched, and says so once', () => {
  const { health, services, slices, log } = createHealth();
  assert.equal(health.status().connected, false);
  services.listed();
  services.following();
  assert.deepEqual([health.status().connected, health.status().listedAt], [false, undefined]);
  slices.listed();
  slices.following();
  slices.following();
  assert.deepEqual(health.status(), { connected: true, lastContactAt: 5, listedAt: 0, staleForMs: 0 });
  assert.deepEqual(
    log.lines.map(({ message }) => message),
    ['Watching the API server'],
  );
});

test('the state is as old as the last sign of the resource that is lost', () => {
  const { health, services, connect, clock } = createHealth();
  connect();
  clock.advance(60_000);
  services.heard();
  clock.advance(30_000);
  assert.equal(health.status().staleForMs, 0);
  services.lost('reset');
  assert.equal(health.status().staleForMs, 30_000);
  clock.advance(1_000);
  assert.equal(health.status().staleForMs, 31_000);
});

test('what was said last of what is lost is known until all is back', () => {
  const { health, services, slices, connect } = createHealth();
  assert.equal(health.status().err, undefined);
  connect();
  services.lost('reset');
  slices.lost('refused');
  assert.equal(health.status().err, 'refused');
  services.following();
  assert.equal(health.status().err, 'refused');
  slices.following();
  assert.equal(health.status().err, undefined);
  slices.dismissed();
  services.lost('HTTP 401');
  assert.equal(health.status().err, 'HTTP 401');
});

test('a loss is logged once with the reason, and its end once', () => {
  const { services, slices, connect, clock, log } = createHealth();
  connect();
  log.lines.length = 0;
  services.lost('connection reset');
  slices.lost('connection reset');
  services.lost('connection refused');
  clock.advance(209_000);
  services.following();
  assert.deepEqual(
    log.lines.map(({ level, fields }) => [level, fields['err']]),
    [['warn', 'connection reset']],
  );
  slices.following();
  const last = log.lines.at(-1);
  assert.deepEqual([log.lines.length, last?.level, last?.fields['awaySeconds']], [2, 'info', 209]);
});

test('a server that was never reached gets another message', () => {
  const { services, log } = createHealth();
  services.lost('connection refused');
  assert.match(String(log.lines[0]?.message), /yet/);
});

test('a resource that the server does not have does not count until the server has it', () => {
  const { health, services, slices } = createHealth();
  services.listed();
  services.following();
  slices.dismissed();
  assert.equal(health.status().connected, true);
  slices.lost('reset');
  assert.equal(health.status().connected, false);
  slices.following();
  assert.equal(health.status().connected, true);
});

test('after stop() it logs nothing', () => {
  const { health, services, slices, connect, log } = createHealth();
  health.stop();
  connect();
  services.lost('reset');
  services.dismissed();
  slices.dismissed();
  assert.deepEqual(log.lines, []);
});
