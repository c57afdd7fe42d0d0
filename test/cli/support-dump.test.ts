import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { collect, SUPPORT_DUMP } from '../../src/cli/support-dump.ts';
import type { ServiceView } from '../../src/model/view.ts';
import type { ProgramRequest } from '../../src/util/run-program.ts';
import { tarOf } from '../../src/util/tar.ts';
import { withoutSecrets } from '../../src/util/text.ts';
import { FAKE_NOW, FakeView } from '../fakes/fake-view.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { controlOf } from './control-of.ts';
import { RecordingTerminal } from './recording-terminal.ts';
import { runCommand } from './run-command.ts';

const directory = mkdtempSync(join(tmpdir(), 'kup-support-'));
after(() => rmSync(directory, { recursive: true }));

const CORE = 's3cr3tCore';
const PEM = `-----BEGIN RSA PRIVATE KEY-----\nMIIE${CORE}\n${CORE}==\n-----END RSA PRIVATE KEY-----`;
/** Each form in which programs, files and errors show secrets. */
const SECRETS = [
  `Authorization: Bearer ${CORE}.x`,
  `authorization: Basic ${CORE}==`,
  `--token=${CORE}`,
  `--token ${CORE}`,
  `token: "${CORE} \\" ${CORE}"`,
  JSON.stringify({ password: CORE, 'client-key-data': CORE, client_secret: CORE, id_token: CORE }),
  `https://admin:${CORE}@10.0.0.1:6443/api`,
  `eyJhbGciOiJSUzI1NiJ9.${CORE}.${CORE}`,
  PEM,
  `certificate-authority-data: ${CORE}`,
  `passwd='${CORE}'`,
  `-m comment --comment "api_key=${CORE}" -j ACCEPT`,
  `access_key=${CORE}`,
  `aws_access_key_id=AKIA${CORE}`,
  `pwd=${CORE}`,
  `DB_PASS=${CORE}`,
  `key: ${CORE}`,
  `a bare ghp_${CORE}, and AKIA${CORE}`,
  `unnamed ${CORE}${'QUJD'.repeat(20)}==`,
];

test('no secret gets into the archive, wherever it stands, and the rest stays', async () => {
  const view = new FakeView();
  const [first] = view.services() as Iterable<ServiceView>;
  view.services = function* () {
    for (const secret of SECRETS) yield { ...(first as ServiceView), reason: `before ${secret} after` };
  };
  view.nodeChanges = { iptables: SECRETS.join('\n'), configNotInForce: SECRETS.join(' ') };
  const run = async ({ program }: ProgramRequest) =>
    ({ outcome: 'exited', code: 0, stdout: `${program} before\n${SECRETS.join('\n')}\nafter`, stderr: PEM }) as const;
  const files = await collect(controlOf(view), run, FAKE_NOW, assert.fail);
  const all = files.map(({ text }) => text).join('\n');
  assert.ok(!all.includes(CORE), all.slice(Math.max(0, all.indexOf(CORE) - 200), all.indexOf(CORE) + 50));
  assert.ok(files.length > 10);
  for (const each of ['journalctl before', 'default/web', 'BEGIN RSA PRIVATE KEY', '10.0.0.1:6443', 'node-1']) {
    assert.ok(all.includes(each), each);
  }
});

test('what has no secret is as it was', () => {
  const rules =
    '-A KUBE-PORTALS-HOST -d 10.96.0.1/32 -p tcp -m comment --comment "default/web:http" -j DNAT --to-destination 10.0.0.1:4';
  assert.equal(withoutSecrets(rules), rules);
  const service = JSON.stringify([...new FakeView().services()]);
  assert.equal(withoutSecrets(service), service);
});

test('what cannot be had says why, and the rest is there', async () => {
  const control = { ask: () => controlOf(new FakeView()).ask('drain', {} as never) } as never;
  const said: string[] = [];
  const files = await collect(
    control,
    async () => ({ outcome: 'missing' }),
    FAKE_NOW,
    (why) => said.push(why),
  );
  assert.deepEqual(said, ['drain is not answered here']);
  const textOf = (name: string) => files.find((each) => each.name === name)?.text ?? '';
  assert.match(textOf('node.json'), /is not answered here/);
  assert.equal(textOf('iptables-save.txt'), '$ iptables-save\nmissing\n');
});

test('tar reads it', () => {
  const path = join(directory, 'some.tar');
  const long = 'x'.repeat(513);
  writeFileSync(
    path,
    tarOf(
      [
        { name: 'a.txt', text: 'é\n' },
        { name: 'b.json', text: '' },
        { name: 'c', text: long },
      ],
      0,
    ),
  );
  const tar = (...args: string[]) => execFileSync('tar', args, { encoding: 'utf8', cwd: directory });
  assert.equal(tar('-tf', path), 'a.txt\nb.json\nc\n');
  tar('-xf', path);
  assert.deepEqual(
    ['a.txt', 'b.json', 'c'].map((name) => readFileSync(join(directory, name), 'utf8')),
    ['é\n', '', long],
  );
});

test('the command writes one file, which is private, and replaces none', async () => {
  const path = join(directory, 'dump.tar.gz');
  const clock = new ManualClock();
  const tools = { clock, connect: () => controlOf(new FakeView()), onInterrupt: () => () => {} };
  const terminal = new RecordingTerminal();
  assert.equal(await runCommand(SUPPORT_DUMP, ['-o', path], terminal, tools), 0);
  assert.equal(statSync(path).mode & 0o777, 0o600);
  const listed = execFileSync('tar', ['-tzf', path], { encoding: 'utf8' });
  assert.match(listed, /^about\.txt\nnode\.json\nservices\.json\nuname\.txt\n/);
  assert.equal(terminal.complained, '');
  const into = (file: string) => runCommand(SUPPORT_DUMP, ['-o', file], terminal, tools);
  await assert.rejects(
    into(path),
    /^UsageError: \S+\/dump\.tar\.gz exists, and no file is replaced; give another --output$/,
  );
  await assert.rejects(
    into(join(directory, 'none/x')),
    /^UsageError: there is no folder \S+\/none; make it, or give another/,
  );
});

test('without a running proxy the command says what the dump lacks, and writes the rest', async () => {
  const path = join(directory, 'silent.tar.gz');
  const control = { ask: () => controlOf(new FakeView()).ask('drain', {} as never) } as never;
  const tools = { clock: new ManualClock(), connect: () => control, onInterrupt: () => () => {} };
  const terminal = new RecordingTerminal();
  assert.equal(await runCommand(SUPPORT_DUMP, ['-o', path], terminal, tools), 0);
  assert.equal(
    terminal.complained,
    'Warning: the dump has only what this node shows, and nothing from the proxy: drain is not answered here.\n',
  );
  assert.equal(statSync(path).mode & 0o777, 0o600);
});
