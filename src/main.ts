import { writeFileSync } from 'node:fs';
import { HELPER_PROCESS } from './kernel/iptables/exec-helper.ts';
import { STAND_IN, standIn } from './kernel/stand-in.ts';

try {
  // Node names its main thread "MainThread", a name by which nobody would find this process.
  writeFileSync('/proc/self/comm', 'kube-userspace-proxy');
} catch {
  // Tools show another name, nothing more.
}

// In the executable, the program is a script of its own, which would take 9 MB of the helper's memory.
if (process.argv0 === HELPER_PROCESS) void import('./kernel/iptables/helper.ts');
else if (process.argv0 === STAND_IN) standIn();
else void import('./app/start.ts').then(({ start }) => start(process.argv.slice(2)));
