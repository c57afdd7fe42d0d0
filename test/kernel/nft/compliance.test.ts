import '../../support/private-netns.ts';
import { createExec } from '../../../src/kernel/iptables/exec.ts';
import * as tables from '../../../src/kernel/nft/nf-tables.ts';
import { createNftKernel } from '../../../src/kernel/nft/nft.ts';
import { systemClock as clock } from '../../../src/util/system-clock.ts';
import { nftKernelCompliance } from '../../compliance/nft-kernel.ts';
import { FakeNftKernel } from '../../fakes/fake-nft-kernel.ts';

nftKernelCompliance('the kernel', () => createNftKernel(createExec({ clock }), tables));
nftKernelCompliance('the fake', () => new FakeNftKernel());
