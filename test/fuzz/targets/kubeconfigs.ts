import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { AccessConfigError } from '../../../src/kubernetes/access.ts';
import { ApiError } from '../../../src/kubernetes/api-error.ts';
import { KubeconfigAccess } from '../../../src/kubernetes/kubeconfig.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';
import { mutateYaml } from '../mutate.ts';
import type { OpenTarget } from '../target.ts';

/* A kubeconfig → the server and the credentials, or a sentence that gives none of them away. */

/** Part of each secret in the corpus. */
const SECRET = 'c2VjcmV0';
const PLACE_OF_SECRET = /^ *(?:token|password|client-key-data): .*$|"(?:token|password|client-key-data)":"[^"]*"/gm;
/** Would start a program, or ask a provider. */
const REACHES_OUT = /exec|auth-?provider|\\/i;

export const open: OpenTarget = (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'fuzz-kubeconfig-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, 'config');
  writeFileSync(join(folder, 'token'), `${SECRET}\n`);
  return {
    make: mutateYaml,

    async run(input) {
      const text = input.toString();
      writeFileSync(path, input, { mode: 0o600 });
      const log = new RecordingLog();
      try {
        const access = await KubeconfigAccess.open({ path, server: undefined, clock: new ManualClock(), log });
        assert.match(access.server.protocol, /^https?:$/);
        if (!REACHES_OUT.test(text)) {
          const { headers, server } = await access.current();
          for (const value of Object.values(headers)) assert.match(value, /^[\x20-\x7e]*$/);
          assert.deepEqual([server.username, server.password, server.search], ['', '', '']);
        }
      } catch (error) {
        const isSentence = error instanceof AccessConfigError || error instanceof ApiError;
        if (!isSentence) throw error;
        assert.doesNotMatch(error.message, /\n/);
        log.error(error.message);
      }
      // Where a secret stands in another place, that place may be named.
      if (text.replaceAll(PLACE_OF_SECRET, '').includes(SECRET)) return;
      assert.ok(!JSON.stringify(log.lines).includes(SECRET), JSON.stringify(log.lines));
    },
  };
};
