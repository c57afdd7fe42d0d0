import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, lstatSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { OWN_PLATFORM } from '../../scripts/packaging/platforms.ts';
import { Environment, type Served } from '../netns/harness.ts';
import type { ProxyProcess } from '../netns/proxy.ts';
import { waitFor } from '../netns/wait.ts';
import { isAlive } from '../support/processes.ts';
import { type Chroot, makeChroot } from './chroot.ts';
import { ImageRoot } from './image.ts';
import { Machine, NAME } from './machine.ts';
import { type Packaged, packaged, VERSIONS, WITHIN } from './release.ts';

const PROGRAM = `/usr/sbin/${NAME}`;
const { architecture } = OWN_PLATFORM;

/** A fake that logs its calls. The state of the service and its process are in files. */
const SYSTEMCTL = `#!/bin/sh
echo "$*" >>/var/log/systemctl
state=$(cat /var/log/state 2>/dev/null || echo inactive)
case $1 in
  is-active) [ "$state" = active ] ;;
  show) echo "$state" ;;
  reload) kill -HUP "$(cat /var/log/pid)" ;;
  stop)
    kill "$(cat /var/log/pid)"
    while kill -0 "$(cat /var/log/pid)" 2>/dev/null; do :; done
    echo inactive >/var/log/state
    ;;
esac
`;

/** What a package may leave behind: records of package managers and of the manual's index, and the fake's files. */
const NOT_OURS = /^\/(proc|sys|dev|tmp|root|run|var\/lib\/dpkg|var\/lib\/rpm|var\/log|var\/cache)(\/|$)/;

/** Two package managers on one system: what matters is how each calls the scripts of its package. */
const FORMATS = [
  {
    name: 'Debian package',
    built: 'debianPackage',
    install: ['dpkg', '--install'],
    remove: ['dpkg', '--remove', NAME],
    purge: ['dpkg', '--purge', NAME],
    verify: ['dpkg', '--verify', NAME],
    zsh: '/usr/share/zsh/vendor-completions',
    kept: [`/etc/default/${NAME}`],
    shared: [],
  },
  {
    name: 'rpm',
    built: 'rpm',
    // Of what is installed here, rpm knows nothing; release.test.ts looks at what the package needs.
    install: ['rpm', '--force-debian', '--nodeps', '--upgrade'],
    remove: ['rpm', '--erase', NAME],
    purge: ['rm', '-r', `/etc/default/${NAME}.rpmsave`, `/var/lib/${NAME}`],
    verify: ['rpm', '--verify', '--nodeps', NAME],
    zsh: '/usr/share/zsh/site-functions',
    kept: [`/etc/default/${NAME}.rpmsave`],
    // Empty, and of fish; where fish is an rpm, too, the folder is of both.
    shared: ['/usr/share/fish/vendor_completions.d'],
  },
] as const;

describe('packages and image', WITHIN, () => {
  let chroot: Chroot;
  let environment: Environment;
  let pristine: string[];
  let made: Readonly<Record<keyof typeof VERSIONS, Packaged>>;

  before(async () => {
    // Set for the tests themselves. The program would fill such a folder, too, in the chroot.
    delete process.env['NODE_COMPILE_CACHE'];
    environment = await Environment.create();
    chroot = makeChroot(['fish', 'iptables', 'libstdc++6', 'man-db', 'rpm', 'zsh']);
    writeFileSync(join(chroot.path, 'usr/bin/systemctl'), SYSTEMCTL, { mode: 0o755 });
    mkdirSync(join(chroot.path, 'run/systemd/system'), { recursive: true });
    pristine = filesOf(chroot.path);
    made = { old: packaged('old'), new: packaged('new') };
    for (const { debianPackage, rpm } of Object.values(made)) {
      for (const file of [debianPackage, rpm]) cpSync(file, join(chroot.path, 'tmp', basename(file)));
    }
  }, WITHIN);

  after(async () => {
    await environment?.remove();
    chroot?.remove();
  });

  /** In the chroot, on the node, whose rules so are those that are meant. */
  const inside = (argv: readonly string[]) =>
    environment.topology.node.output(chroot.command(argv), {
      env: { LC_ALL: 'C.UTF-8' },
      timeoutMs: 300_000,
    });
  const serve = (name: string) => environment.serve({ name });
  const serves = async (service: Served) =>
    assert.deepEqual((await environment.client.call('requests', { ...service, count: 3 })).failures, {});
  const portals = async () => (await environment.iptables.save()).filter((rule) => rule.includes('KUBE-PORTALS'));
  const log = (file: string) => join(chroot.path, 'var/log', file);
  /** What systemctl was asked for since the last time. */
  const asked = () => {
    const lines = existsSync(log('systemctl')) ? readFileSync(log('systemctl'), 'utf8').trim().split('\n') : [];
    rmSync(log('systemctl'), { force: true });
    return lines;
  };

  async function startProxy(): Promise<ProxyProcess> {
    const proxy = await environment.startProxy({
      through: chroot.command([], { binds: [environment.manifests.directory] }),
      program: PROGRAM,
    });
    writeFileSync(log('pid'), String(proxy.pid));
    writeFileSync(log('state'), 'active');
    return proxy;
  }

  for (const { name, built, zsh, kept, shared, ...commands } of FORMATS) {
    const { remove, purge, verify } = commands;
    const install = (which: keyof typeof VERSIONS) =>
      inside([...commands.install, `/tmp/${basename(made[which][built])}`]);

    describe(name, () => {
      test('is installed where it belongs, and neither enabled nor started', async () => {
        await install('old');
        assert.deepEqual(asked(), ['daemon-reload']);
        const added = filesOf(chroot.path).filter((file) => !pristine.includes(file));
        assert.deepEqual(
          added.filter((file) => !file.startsWith('/usr/share/doc/')),
          [
            `/etc/default/${NAME}`,
            `/usr/lib/${NAME}/koffi.node`,
            `/usr/lib/systemd/system/${NAME}.service`,
            PROGRAM,
            `/usr/share/bash-completion/completions/${NAME}`,
            `/usr/share/fish/vendor_completions.d/${NAME}.fish`,
            `/usr/share/man/man8/${NAME}.8.gz`,
            `${zsh}/_${NAME}`,
          ],
        );
        assert.equal(chroot.run([NAME, '--version']).stdout, `${NAME} v${VERSIONS.old}\n`);
        await inside(verify);
        const unit = readFileSync(join('deploy', `${NAME}.service`), 'utf8');
        assert.equal(readFileSync(join(chroot.path, `usr/lib/systemd/system/${NAME}.service`), 'utf8'), unit);
      });

      test('an upgrade of what runs hands over to the new program; the setting of an administrator stays', async () => {
        const proxy = await startProxy();
        const service = await serve('name');
        const load = await environment.client.call('startLoad', { ...service, concurrency: 4 });
        const setting = join(chroot.path, 'etc/default', NAME);
        writeFileSync(setting, 'OPTIONS="--manifests=/etc/services"\n');

        await install('new');
        assert.deepEqual(asked(), ['daemon-reload', `is-active --quiet ${NAME}.service`, `reload ${NAME}.service`]);
        const handedOver = () => proxy.log.find(({ msg }) => msg.startsWith('Handed over'));
        const line = await waitFor('the hand-over', handedOver, 60_000);
        await waitFor('the old process ends', () => !isAlive(proxy.pid));
        const successor = Number(line['pid']);
        assert.equal(versionOf(successor), `${NAME} v${VERSIONS.new}\n`);
        const { failures } = await environment.client.call('stopLoad', { load });
        assert.deepEqual(failures, {});
        await serves(service);
        assert.equal(readFileSync(setting, 'utf8'), 'OPTIONS="--manifests=/etc/services"\n');
        writeFileSync(log('pid'), String(successor));
      });

      test('removing what runs stops it and takes its rules away', async () => {
        assert.notDeepEqual(await portals(), []);
        const pid = Number(readFileSync(log('pid'), 'utf8'));
        await inside(remove);
        assert.ok(!isAlive(pid));
        assert.deepEqual(
          (await environment.iptables.save()).filter((rule) => rule.includes('KUBE-')),
          [],
        );
        const unit = `${NAME}.service`;
        assert.deepEqual(asked(), [
          `show --property=ActiveState --value ${unit}`,
          `stop ${unit}`,
          `--quiet disable ${unit}`,
          'daemon-reload',
        ]);
      });

      test('removing what does not run leaves the rules to whom they belong', async () => {
        await install('new');
        await environment.iptables.must('-t nat -N KUBE-SERVICES');
        asked();
        await inside(remove);
        const rules = await environment.iptables.save();
        assert.ok(rules.some((line) => line.startsWith(':KUBE-SERVICES ')));
        assert.ok(!asked().some((line) => line.startsWith('stop')));
      });

      test('a purge leaves nothing; before, only what an administrator has changed is there', async () => {
        const added = () => filesOf(chroot.path).filter((file) => !pristine.includes(file));
        assert.deepEqual(added(), kept);
        // As its last state.
        mkdirSync(join(chroot.path, 'var/lib', NAME));
        writeFileSync(join(chroot.path, 'var/lib', NAME, 'state'), '');
        await inside(purge);
        assert.deepEqual(added(), []);
        const gone = pristine.filter((file) => !lstatSync(join(chroot.path, file), { throwIfNoEntry: false }));
        assert.deepEqual(gone, shared);
      });

      test('its scripts do nothing where no systemd runs', async () => {
        const systemd = join(chroot.path, 'run/systemd');
        renameSync(systemd, `${systemd}.away`);
        asked();
        await install('old');
        await inside(remove);
        renameSync(`${systemd}.away`, systemd);
        assert.deepEqual(asked(), []);
      });
    });
  }

  test('the manual can be shown, completions can be read', async () => {
    await inside(['dpkg', '--install', `/tmp/${basename(made.old.debianPackage)}`]);
    const { stdout, stderr } = chroot.run(['man', '--warnings', '--pager=cat', NAME], { env: { MANWIDTH: '100' } });
    assert.equal(stderr, '');
    assert.match(stdout, /^KUBE-USERSPACE-PROXY\(8\)/);
    assert.match(stdout, /\n {7}--dataplane=auto\|fast\|node\n/);
    chroot.run(['bash', '-n', `/usr/share/bash-completion/completions/${NAME}`]);
    chroot.run(['zsh', '-n', `/usr/share/zsh/vendor-completions/_${NAME}`]);
    const fish = chroot.run(['fish', '--command', `complete -C'${NAME} --iptables-mode '`]);
    assert.deepEqual(
      fish.stdout.split('\n').map((line) => line.split('\t')[0]),
      ['auto', 'legacy', 'nft', ''],
    );
    const zsh = chroot.run(['zsh', '-c', `autoload -Uz compinit; compinit -u; print $_comps[${NAME}]`]);
    assert.equal(zsh.stdout, `_${NAME}\n`);
    await inside(['dpkg', '--purge', NAME]);
  });

  test('the image serves, with the capabilities that the manifests give', async () => {
    const archive = join(made.old.out, `${NAME}_${VERSIONS.old}_oci.tar`);
    const root = new ImageRoot(archive, architecture);
    try {
      const { Entrypoint, Env, Labels } = root.config;
      assert.equal(Labels['org.opencontainers.image.version'], VERSIONS.old);
      assert.ok(Env.includes('MALLOC_ARENA_MAX=2'));
      const capabilities = ['cap_net_admin', 'cap_net_raw', 'cap_net_bind_service'];
      // Each finds its libraries.
      for (const tool of ['iptables-nft', 'iptables-legacy', 'ip6tables-nft', 'nft']) {
        const [file = '', ...args] = [...root.command(capabilities, []), `/usr/sbin/${tool}`, '--version'];
        assert.match(spawnSync(file, args, { encoding: 'utf8' }).stdout, /^(ip6?tables|nftables) v\d/, tool);
      }
      const proxy = await environment.startProxy({
        through: root.command(capabilities, [environment.manifests.directory]),
        program: Entrypoint[0],
      });
      const service = await serve('image');
      await serves(service);
      assert.deepEqual(
        readFileSync(`/proc/${proxy.pid}/status`, 'utf8').match(/^CapBnd:\s+(\w+)$/m)?.[1],
        // NET_BIND_SERVICE, NET_ADMIN and NET_RAW: bits 10, 12 and 13.
        '0000000000003400',
      );
      assert.equal(await proxy.stop(), 0);
    } finally {
      root.remove();
    }
  });

  test('under systemd: it starts, is upgraded in place, restarted when it hangs, and removed', async (t) => {
    const { node } = environment.topology;
    const machine = await Machine.boot(node, environment.manifests.directory).catch((error: Error) => {
      t.skip(`systemd cannot be booted here: ${error.message}`);
    });
    if (machine === undefined) return;
    t.after(() => machine.stop());
    const [oldPackage, newPackage] = [made.old.debianPackage, made.new.debianPackage];
    for (const file of [oldPackage, newPackage]) cpSync(file, join(machine.path, 'root', basename(file)));
    const property = (name: string) => machine.property(name);
    const complaints = async () => {
      const text = await machine.run('journalctl', '--unit', NAME, '--output=cat');
      assert.match(text, /"msg":"Took over from the predecessor"/);
      const lines = text.split('\n').filter((line) => /"level":"(warn|error)"/.test(line));
      // In a container like this one the kernel always refuses some.
      return lines.filter((line) => !line.includes('"msg":"The kernel refused some settings'));
    };

    await machine.run('dpkg', '--install', `/root/${basename(oldPackage)}`);
    assert.equal(await property('ActiveState'), 'inactive');
    assert.equal(await property('UnitFileState'), 'disabled');

    await machine.configure();
    await machine.run('systemctl', 'enable', '--now', NAME);
    const service = await serve('systemd');
    const load = await environment.client.call('startLoad', { ...service, concurrency: 4 });
    const before = await property('MainPID');
    assert.match(await machine.run(NAME, 'version'), new RegExp(VERSIONS.old));

    await machine.run('dpkg', '--install', `/root/${basename(newPackage)}`);
    await waitFor('the successor to be the main process', async () => (await property('MainPID')) !== before, 60_000);
    await waitFor('it to be ready', async () => (await property('ActiveState')) === 'active');
    const running = `/proc/${await property('MainPID')}`;
    assert.equal(await machine.run(`${running}/exe`, '--version'), `${NAME} v${VERSIONS.new}\n`);
    assert.match(await machine.run('cat', `${running}/status`), /^CapEff:\t0000000000003400$/m);
    assert.equal(await machine.run('stat', '--format=%a', `/run/${NAME}`), '700\n');
    // It answers operators before it has read from the kernel what its Services had.
    await waitFor('it to list the Service', async () => (await machine.run(NAME, 'list')).includes('systemd'));
    const { failures } = await environment.client.call('stopLoad', { load });
    assert.deepEqual(failures, {});
    await machine.watchdogIsFed();
    assert.equal(await property('NRestarts'), '0');

    assert.deepEqual(await complaints(), [], 'of the unit, which leaves it nothing that it does not need');
    const main = await property('MainPID');
    const helper = (await machine.run('cat', `/proc/${main}/task/${main}/children`)).trim();
    for (const pid of [main, helper]) assert.match(await machine.run('cat', `/proc/${pid}/status`), /^Seccomp:\t2$/m);
    // Of 100. With neither capabilities for the network nor root's user it would be less, and could write no rules.
    await machine.run('systemd-analyze', 'security', '--threshold=22', NAME);

    // Though the successor is no child of systemd's.
    await machine.run('systemctl', 'stop', NAME);
    assert.equal(await property('Result'), 'success');
    await machine.run('systemctl', 'start', NAME);

    const rules = await portals();
    const stoppedAt = Date.now() / 1000;
    await machine.run('systemctl', 'kill', '--kill-whom=main', '--signal=SIGSTOP', NAME);
    await waitFor('systemd to start it anew', async () => (await property('NRestarts')) === '1');
    await waitFor('its first sync', async () => (await environment.lastSync()) > stoppedAt);
    await serves(service);
    assert.deepEqual(await portals(), rules);
    rmSync(join(machine.path, 'etc/systemd/system', `${NAME}.service.d`), { recursive: true });

    await machine.run('dpkg', '--purge', NAME);
    assert.equal(await property('LoadState'), 'not-found');
    assert.deepEqual(await portals(), []);
    assert.equal((await machine.try('ls', `/run/${NAME}`)).code, 2);
    assert.equal((await machine.try('find', '/etc', '/usr', '-name', `*${NAME}*`)).stdout, '');
  });
});

/** Of the program that a process runs, even if its file has gone. */
function versionOf(pid: number): string {
  return spawnSync(`/proc/${pid}/exe`, ['--version'], { encoding: 'utf8' }).stdout;
}

/** Files, links and empty folders below a root, as paths from it, sorted. */
function filesOf(root: string): string[] {
  const argv = [root, '-xdev', '(', '!', '-type', 'd', '-o', '-empty', ')', '-printf', '/%P\\n'];
  const { stdout } = spawnSync('find', argv, { encoding: 'utf8', maxBuffer: 64 << 20 });
  return stdout
    .split('\n')
    .filter((path) => path !== '' && !NOT_OURS.test(path))
    .sort();
}
