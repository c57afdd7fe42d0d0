import { addonDescriptor, pathOf } from './addon-file.ts';

/*
 * Takes the place of the package in the executable: its addon as it is. That lies in a file in memory, so no folder has
 * to be writable, or mounted without `noexec`.
 */

const descriptor = addonDescriptor();
if (descriptor === undefined) {
  throw new Error("koffi's addon is not in memory, as the kernel refused memfd_create; allow it, and start again");
}
const addon: { exports: unknown } = { exports: {} };
// Left open: each worker thread loads it again.
process.dlopen(addon as NodeJS.Module, pathOf(descriptor));

export default addon.exports;
