import { readdirSync, readlinkSync } from 'node:fs';

/** What the file in memory is called that holds koffi's addon. The first code of the process makes it (entry-code.ts). */
export const ADDON_NAME = 'kube-userspace-proxy-koffi';

const DESCRIPTORS = '/proc/self/fd';

/** `undefined` when the kernel would not have it. */
export function addonDescriptor(): number | undefined {
  const found = readdirSync(DESCRIPTORS).find((descriptor) => {
    try {
      return readlinkSync(`${DESCRIPTORS}/${descriptor}`).startsWith(`/memfd:${ADDON_NAME}`);
    } catch {
      // Closed meanwhile, as the one that has just read the folder.
      return false;
    }
  });
  return found === undefined ? undefined : Number(found);
}

export function pathOf(descriptor: number): string {
  return `${DESCRIPTORS}/${descriptor}`;
}
