import assert from 'node:assert/strict';
import { test } from 'node:test';
import { withoutAddress } from '../../src/util/text.ts';

const REFUSED = 'connect ECONNREFUSED';

for (const [text, name, expected] of [
  [`${REFUSED} 10.0.0.1:80`, '10.0.0.1:80', REFUSED],
  [`${REFUSED} fd00::1:80`, '[fd00::1]:80', REFUSED],
  [`${REFUSED} [fd00::1]:80: nobody listens there`, '[fd00::1]:80', `${REFUSED}: nobody listens there`],
  // A URL leaves the port of its scheme out.
  [`${REFUSED} 10.0.0.1:443`, '10.0.0.1', REFUSED],
  [`${REFUSED} 10.0.0.1:443`, 'api.example', `${REFUSED} 10.0.0.1:443`],
  [`${REFUSED} 10.0.0.1:80`, '10.0.0.1:8', `${REFUSED} 10.0.0.1:80`],
  [`${REFUSED} 10.0.0.10:80`, '10.0.0.1', `${REFUSED} 10.0.0.10:80`],
  [`${REFUSED} 10x0.0.1:80`, '10.0.0.1:80', `${REFUSED} 10x0.0.1:80`],
] as const) {
  test(`"${text}" beside ${name} is "${expected}"`, () => {
    assert.equal(withoutAddress(text, name), expected);
  });
}
