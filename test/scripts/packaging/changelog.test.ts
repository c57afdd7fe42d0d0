import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import packageJson from '../../../package.json' with { type: 'json' };
import { debianChangelog, sectionOf } from '../../../scripts/packaging/changelog.ts';

const CHANGELOG = join(import.meta.dirname, '../../../CHANGELOG.md');

describe('the changelog', () => {
  const text =
    '# Changelog\n\nHow versions go on.\n\n## 0.10.0\n\n### Before\n\nNew.\n\n## 0.1.0 (2026)\n\nOld.\n\n## 0.0.1\n\n';

  test('gives the section of one version, up to the next', () => {
    assert.equal(sectionOf(text, '0.10.0'), '### Before\n\nNew.');
    assert.equal(sectionOf(text, '0.1.0'), 'Old.');
  });

  test('throws where a version has no section, or one that says nothing', () => {
    for (const version of ['0.1', '0.0.1', '1.0.0']) {
      const message = `CHANGELOG.md does not say what ${version} brings; begin a section with "## ${version}"`;
      assert.throws(() => sectionOf(text, version), { message });
    }
  });

  test('says what the version of these sources brings', () => {
    assert.notEqual(sectionOf(readFileSync(CHANGELOG, 'utf8'), packageJson.version), '');
  });

  test('becomes one entry in the form of Debian, whatever it says', () => {
    const section = 'kube (1.0) unstable; urgency=low\n\n- a\n  b\n\n -- somebody';
    const options = { name: 'kube', version: '0.1.0~rc.1', maintainer: 'We <we@example.com>', epoch: 86_400 };
    assert.equal(
      debianChangelog(section, options),
      'kube (0.1.0~rc.1) unstable; urgency=medium\n\n' +
        '  kube (1.0) unstable; urgency=low\n\n  - a\n    b\n\n   -- somebody\n\n' +
        ' -- We <we@example.com>  Fri, 02 Jan 1970 00:00:00 +0000\n',
    );
  });
});
