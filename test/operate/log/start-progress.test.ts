import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { progressText, type StartProgress } from '../../../src/operate/log/start-progress.ts';

const START: StartProgress = {
  elapsedMs: 12_345,
  api: { server: '192.0.2.1:6443', hasAnswered: false },
  isSynced: false,
  pendingServices: 0,
  wantedPorts: 0,
  openListeners: 0,
  isReady: false,
};
const text = (changes: Partial<StartProgress>) => progressText({ ...START, ...changes });
const ANSWERED = { server: '192.0.2.1:6443', hasAnswered: true };

describe('how far the start has come', () => {
  test('waiting for the API server', () => {
    assert.equal(text({}), 'Waiting for the API server 192.0.2.1:6443 (12 s)');
    assert.equal(
      text({ api: { server: 'a\x1b[31m', hasAnswered: false } }),
      'Waiting for the API server a\\u001b[31m (12 s)',
    );
  });

  test('listing', () => {
    assert.equal(text({ api: ANSWERED }), 'Listing Services from 192.0.2.1:6443 (12 s)');
    assert.equal(
      text({ api: ANSWERED, pendingServices: 3_200 }),
      'Listing Services from 192.0.2.1:6443, 3,200 Services so far (12 s)',
    );
    assert.equal(text({ api: undefined, pendingServices: 1 }), 'Reading manifests, 1 Service so far (12 s)');
  });

  test('opening listeners, of all that are known to come', () => {
    assert.equal(
      text({ isSynced: true, pendingServices: 6_000, wantedPorts: 4_000, openListeners: 3_200 }),
      'Opening listeners: 3,200 of 10,000 (12 s)',
    );
  });

  test('installing rules', () => {
    assert.equal(
      text({ isSynced: true, wantedPorts: 1_234_567, openListeners: 1_234_567 }),
      'Installing the rules of 1,234,567 Service ports (12 s)',
    );
  });

  test('ready', () => {
    assert.equal(
      text({ isSynced: true, isReady: true, wantedPorts: 1, elapsedMs: 3_449 }),
      'Ready: 1 Service port in 3.4 s',
    );
  });
});
