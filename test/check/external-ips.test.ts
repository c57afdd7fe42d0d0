import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkExternalIPs } from '../../src/check/external-ips.ts';
import { address, cidr, service } from '../support/model.ts';

const using = (key: `${string}/${string}`) => service({ key, externalIPs: [address('203.0.113.9')] });
const told = (...args: Parameters<typeof checkExternalIPs>) =>
  checkExternalIPs(...args).map(({ level, found, advice }) => `${level} ${found} → ${advice}`)[0] ?? '';

test('external IPs without a limit are a warning, also before anybody has one', () => {
  assert.match(
    told(undefined, [service()]),
    /^warn .* any external IP; now no Service has any → give .* 192\.0\.2\.0\/24$/,
  );
  assert.match(told(undefined, [service(), using('shop/a')]), /; now shop\/a have some → name their networks/);
  const many = Array.from('abcde', (name) => using(`shop/${name}`));
  assert.match(told(undefined, many), /; now shop\/a, shop\/b, shop\/c and 2 more have some/);
  assert.match(told([], many), /^ok they are switched off by the feature gate AllowServiceExternalIPs/);
  assert.match(told([cidr('192.0.2.0/24')], many), /^ok they may be in 192\.0\.2\.0\/24 /);
});
