import assert from 'node:assert/strict';
import { release } from 'node:os';
import { describe, test } from 'node:test';
import type { ExecResult } from '../../../src/kernel/iptables/exec.ts';
import * as tables from '../../../src/kernel/nft/nf-tables.ts';
import { createNftKernel, obstacleOf } from '../../../src/kernel/nft/nft.ts';
import { CaptureError } from '../../../src/model/capture.ts';

const exited = (stdout: string, code = 0, stderr = ''): ExecResult => ({ outcome: 'exited', code, stdout, stderr });

describe('what keeps a node from nft tables', () => {
  const versions: readonly (readonly [program: ExecResult, kernel: string, obstacle: string | undefined])[] = [
    [exited('nftables v1.0.1 (Fearless Fosdick #3)\n'), '5.13.0-1-amd64', undefined],
    [exited('nftables v1.1.6 (Commodore Bullmoose #7)\n'), '6.12.9+', undefined],
    [exited('nftables v2.0\n'), '7.0.0', undefined],
    [exited('nftables v1.0.0 (x)\n'), '6.1.0', 'nft is version 1.0.0; install 1.0.1 or later'],
    [exited('nftables v0.9.8 (E.D.S.)\n'), '6.1.0', 'nft is version 0.9.8; install 1.0.1 or later'],
    [exited('what?\n'), '6.1.0', 'nft is version unknown; install 1.0.1 or later'],
    [
      exited('nftables v1.0.6\n'),
      '5.10.0-28-amd64',
      'this is kernel 5.10.0-28-amd64, and nft tables need 5.13 or later',
    ],
    [{ outcome: 'missing' }, '6.1.0', 'nft is not on PATH: install the package "nftables"'],
  ];
  for (const [program, kernel, obstacle] of versions) {
    test(`kernel ${kernel}, ${program.outcome === 'exited' ? program.stdout.trim() : program.outcome}`, async () => {
      assert.equal(await obstacleOf(async () => program, kernel), obstacle);
    });
  }

  test('without system calls', async () => {
    const kernel = createNftKernel(async () => exited(''), undefined);
    const sentence = 'nft tables need system calls, and koffi could not be loaded';
    assert.equal(await kernel.obstacle(), sentence);
    assert.equal(kernel.generation(), undefined);
    await assert.rejects(kernel.elements('IPv4', 'portals'), new CaptureError(sentence, { mayPass: false }));
  });

  test('this machine has none', async () => {
    const exec = async () => exited('nftables v1.0.6 (Lester Gooch #5)\n');
    assert.equal(await createNftKernel(exec, tables).obstacle(), undefined, release());
  });
});

describe('a program that ends otherwise than with success', () => {
  const ends: readonly (readonly [result: ExecResult, message: RegExp, mayPass: boolean])[] = [
    [{ outcome: 'missing' }, /^nft is not on PATH/, false],
    [{ outcome: 'timeout', timeoutMs: 5 }, /^nft did not end within 5 ms/, true],
    [{ outcome: 'failed', err: 'EAGAIN' }, /^nft could not be run: EAGAIN$/, true],
    [exited('', 1, '/dev/stdin:1:1-2: Error: syntax error\n'), /^nft refused the table: .*syntax error$/, false],
    [exited('', 1, 'Error: Could not process rule: Device or resource busy\n'), /busy$/, true],
    [exited('', 1, 'Operation not permitted (you must be root)\n'), /^nft needs root or CAP_NET_ADMIN/, false],
    [exited('', null as unknown as number, ''), /^nft refused the table: no message$/, false],
  ];
  for (const [result, message, mayPass] of ends) {
    test(`${message}`, async () => {
      await createNftKernel(async () => result, tables)
        .run('table ip x\n')
        .then(
          () => assert.fail('it succeeded'),
          (error) => {
            assert.ok(error instanceof CaptureError);
            assert.match(error.message, message);
            assert.equal(error.mayPass, mayPass);
          },
        );
    });
  }
});
