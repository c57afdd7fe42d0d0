import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseEndpoint } from '../../src/cli/shared.ts';
import { UsageError } from '../../src/config/usage-error.ts';
import { endpointName } from '../../src/model/endpoint.ts';

test('an endpoint is written as it is shown', () => {
  for (const name of ['10.244.1.7:8080', '[fd00::7]:1', '192.0.2.1:65535']) {
    assert.equal(endpointName(parseEndpoint(name)), name);
  }
  assert.equal(endpointName(parseEndpoint('[FD00:0::7]:080')), '[fd00::7]:80');
});

test('anything else is refused', () => {
  const bad = ['', '10.244.1.7', ':80', '10.244.1.7:', '10.244.1.7:0', '10.244.1.7:65536', '10.244.1:80', 'fd00::7:80'];
  const worse = [
    '[10.244.1.7]:80',
    '[fe80::1%eth0]:80',
    'web:80',
    '10.244.1.7:80/udp',
    '10.244.1.7:80 ',
    '10.244.1.7:1e3',
  ];
  for (const text of [...bad, ...worse]) {
    assert.throws(
      () => parseEndpoint(text),
      (error) => error instanceof UsageError && error.message.includes('not an address with a port; write it'),
      text,
    );
  }
});
