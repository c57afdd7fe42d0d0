import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { ARCHITECTURES } from '../../scripts/packaging/platforms.ts';
import { waitFor } from '../netns/wait.ts';
import { Arm64Node, POD_ADDRESSES, POD_PORT } from './arm64-node.ts';
import { NAME } from './machine.ts';
import { copySources, inCopy, PACKAGED_WITHIN_MS, packaged, succeed, unpack, VERSIONS } from './release.ts';

const VERSION = VERSIONS.old;

const debianPackage = (architecture: string) => `${NAME}_${VERSION}_${architecture}.deb`;
const tarball = (architecture: string) => `${NAME}_${VERSION}_linux_${architecture}.tar.gz`;
const billOfMaterials = (architecture: string) => `${NAME}_${VERSION}_${architecture}.cdx.json`;

const MANIFEST = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  clusterIP: 10.96.0.100
  ports: [{port: 80, targetPort: ${POD_PORT}}]
---
apiVersion: v1
kind: Endpoints
metadata: {name: web, namespace: default}
subsets:
- addresses: [${POD_ADDRESSES.map((ip) => `{ip: ${ip}}`).join(', ')}]
  ports: [{port: ${POD_PORT}}]
`;

/** Sends as many bytes as are asked for, and prints how many of them come back as they were. */
const ECHO = `
const bytes = require('crypto').randomBytes(Number(process.argv[1]));
const socket = require('net').connect({ host: '10.96.0.100', port: 80, allowHalfOpen: true });
socket.end(bytes);
socket.toArray().then((chunks) => console.log(Buffer.concat(chunks).equals(bytes) ? bytes.length : 'not the same'));
`;

describe('a release', { timeout: PACKAGED_WITHIN_MS }, () => {
  let work: string;
  let release: string;
  let sources: string;

  before(() => {
    delete process.env['NODE_COMPILE_CACHE'];
    work = mkdtempSync(join(tmpdir(), 'release-'));
    const made = packaged('old');
    release = made.out;
    sources = made.sources;
  });

  after(() => rmSync(work, { recursive: true }));

  /** The folder of what is in a tarball. */
  function unpacked(architecture: string): string {
    const folder = join(work, architecture);
    if (!existsSync(folder)) unpack(join(release, tarball(architecture)), folder);
    return folder;
  }

  test('is the same, byte for byte, when others make it elsewhere', () => {
    const folder = join(work, 'elsewhere');
    // Of the copy: somebody may be at work on the sources.
    copySources(folder, VERSION, sources);
    const environment = 'TZ=Asia/Tokyo LANG=de_DE.UTF-8 COLUMNS=40 FORCE_COLOR=1 SOURCE_DATE_EPOCH=1';
    succeed(inCopy(folder, `umask 077; ${environment} exec scripts/release ../sent`));
    const sums = (out: string) => readFileSync(join(out, 'SHA256SUMS'), 'utf8');
    assert.equal(sums(join(work, 'sent')), sums(release));
    const check = spawnSync('sha256sum', ['--check', 'SHA256SUMS'], { cwd: join(work, 'sent'), encoding: 'utf8' });
    succeed(check);
  });

  test('has all that its page needs', () => {
    const summed = [
      'Dockerfile',
      ...ARCHITECTURES.flatMap((each) => [debianPackage(each), tarball(each), billOfMaterials(each)]),
    ].sort();
    assert.deepEqual(readdirSync(release).sort(), [...summed, 'SHA256SUMS', 'release-notes.md'].sort());
    const sums = readFileSync(join(release, 'SHA256SUMS'), 'utf8').trim().split('\n');
    assert.deepEqual(sums.map((line) => line.split('  ')[1]).sort(), summed);
    const notes = readFileSync(join(release, 'release-notes.md'), 'utf8');
    assert.ok(notes.startsWith(`- News of ${VERSION}, more (\`docs/more.md\`).\n\n## Files\n`), notes);
    // Every file that it tells to type.
    const named = [...notes.matchAll(new RegExp(`${NAME}_[\\w.-]*amd64[\\w.]*`, 'g'))].map(([file]) => file);
    assert.deepEqual(new Set(named), new Set([debianPackage('amd64'), tarball('amd64')]));
  });

  test('tells in the Debian package, too, what is new', () => {
    const read = `dpkg-deb --fsys-tarfile "$1" | tar -xO ./usr/share/doc/${NAME}/changelog.gz | gunzip`;
    const argv = ['-c', read, 'sh', join(release, debianPackage('arm64'))];
    const [head, , news, ...rest] = spawnSync('sh', argv, { encoding: 'utf8' }).stdout.split('\n');
    assert.equal(head, `${NAME} (${VERSION.replace('-', '~')}) unstable; urgency=medium`);
    assert.equal(news, `  - News of ${VERSION}, [more](docs/more.md).`);
    assert.match(rest.join('\n'), /^\n -- .* <.*> {2}Tue, 14 Nov 2023 22:13:20 \+0000\n$/);
  });

  test('is not made of what is not committed, nor without a word of what it brings', () => {
    const folder = join(work, 'unfit');
    copySources(folder, VERSION, sources);
    writeFileSync(join(folder, 'src/forgotten.ts'), '');
    const uncommitted = inCopy(folder, 'scripts/release');
    assert.equal(uncommitted.status, 1);
    assert.match(uncommitted.stderr, /^release: commit or remove these first.*\n\?\? src\/forgotten\.ts\n$/);
    rmSync(join(folder, 'src/forgotten.ts'));
    writeFileSync(join(folder, 'CHANGELOG.md'), '## 0.0.1\n\n- Old.\n');
    succeed(inCopy(folder, 'git -c user.name=a -c user.email=a commit --quiet --all --message silence'));
    const silent = inCopy(folder, 'scripts/release');
    assert.equal(silent.status, 1);
    assert.match(silent.stderr, /^package: CHANGELOG\.md does not say what 1\.0\.0-rc\.1 brings; [^\n]+\n$/);
    assert.equal(existsSync(join(folder, 'dist')), false);
  });

  test('its Debian packages depend on what the executables are linked with', () => {
    const text = ARCHITECTURES.map((each) => readFileSync(join(unpacked(each), 'sbin', NAME), 'latin1')).join('\0');
    const needed = new Set([...text.matchAll(/\0(lib[\w+]+\.so\.\d+)(?=\0)/g)].map(([, library]) => library));
    const libraries = 'libc.so.6 libdl.so.2 libgcc_s.so.1 libm.so.6 libpthread.so.0 libstdc++.so.6';
    assert.equal([...needed].sort().join(' '), libraries);
    const newest = (symbols: string) =>
      [...text.matchAll(new RegExp(`\\0${symbols}_([\\d.]+)(?=\\0)`, 'g'))]
        .map(([, version = '']) => version)
        .sort((one, other) => one.localeCompare(other, 'en', { numeric: true }))
        .at(-1);
    for (const architecture of ARCHITECTURES) {
      const argv = ['--field', join(release, debianPackage(architecture)), 'Architecture', 'Depends'];
      const { stdout: fields } = spawnSync('dpkg-deb', argv, { encoding: 'utf8' });
      assert.ok(fields.includes(`Architecture: ${architecture}\n`), fields);
      assert.ok(fields.includes(`libc6 (>= ${newest('GLIBC')})`), `${newest('GLIBC')}: ${fields}`);
      assert.ok(fields.includes(`libgcc-s1 (>= ${newest('GCC')})`), `${newest('GCC')}: ${fields}`);
      assert.match(fields, /libstdc\+\+6 \(>= 6\)/);
      assert.match(fields, /\biptables,/);
    }
    // That of GCC 6.1.
    assert.equal(newest('GLIBCXX'), '3.4.22');
  });

  test('its tarballs have a unit that starts what is unpacked in /usr/local', () => {
    const unit = readFileSync(join(unpacked('amd64'), `lib/systemd/system/${NAME}.service`), 'utf8');
    assert.match(unit, new RegExp(`^ExecStart=/usr/local/sbin/${NAME} `, 'm'));
    assert.ok(!unit.includes('/usr/sbin'));
  });

  test('for arm64 serves with the fast engine: each byte comes back, and a dead endpoint is passed over', async (t) => {
    const problem = Arm64Node.problem();
    if (problem !== undefined) return t.skip(problem);
    const program = join(unpacked('arm64'), 'sbin', NAME);
    const manifest = join(work, 'web.yaml');
    writeFileSync(manifest, MANIFEST);
    const node = await Arm64Node.boot();
    t.after(() => node.stop());
    assert.equal(await node.run(program, '--version'), `${NAME} v${VERSION}\n`);

    // The emulator does not pass on what asks for connection tracking.
    const flags = ['--dataplane=fast', '--client-address=node', '--iptables-mode=nft'];
    const start = () => node.start(program, `--manifests=${manifest}`, ...flags);
    let proxy = start();
    const isServed = async () => {
      // An emulator is no processor: a signal has ended it in one start of many.
      if (proxy.process.signalCode !== null) {
        t.diagnostic(`${proxy.process.signalCode} ended the emulator; it starts anew. ${proxy.log()}`);
        proxy = start();
      }
      assert.equal(proxy.process.exitCode, null, proxy.log());
      return (await node.run('iptables-nft-save', '--table=nat')).includes('-A KUBE-PORTALS-HOST -d 10.96.0.100/32');
    };
    await waitFor('its rules', isServed, 300_000);
    for (const bytes of [5, 300_000, 5, 300_000]) {
      assert.equal(await node.run(process.execPath, '-e', ECHO, String(bytes)), `${bytes}\n`, proxy.log());
    }
    const refused = /"msg":"An endpoint refused the connection.*"backend":"10\.244\.1\.12:8080"/;
    await waitFor('it to say that one endpoint refuses', () => refused.test(proxy.log()));
    assert.match(await node.run(program, 'list'), /10\.96\.0\.100:80 .*default\/web\n.* 10\.244\.1\.11:8080 /);
    // It has loaded the addon of the tarball, and so has written none.
    assert.equal(await node.run('ls', `/run/${NAME}`), 'control.sock\n');
    const ended = once(proxy.process, 'exit');
    await proxy.stop();
    assert.deepEqual(await ended, [0, null], proxy.log());
  });
});
