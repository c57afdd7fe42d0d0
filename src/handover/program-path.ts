import { realpathSync } from 'node:fs';
import { resolve } from 'node:path';

/** The kernel adds it to the name of a program whose file has been removed or replaced, since it was started even. */
const DELETED = / \(deleted\)$/;

/**
 * Where this program lies on disk, under the name that it was called by: that may be a symbolic link, which is led
 * elsewhere by an upgrade. `execPath` is what the kernel says (`/proc/self/exe`).
 */
export function programPath({ argv0, execPath }: { readonly argv0: string; readonly execPath: string }): string {
  const file = execPath.replace(DELETED, '');
  try {
    const called = resolve(argv0);
    return argv0.includes('/') && realpathSync(called) === file ? called : file;
  } catch {
    return file;
  }
}
