import { Script } from 'node:vm';

/** Where code that V8 has cached says with which flags: v8/src/snapshot/code-serializer.h, `SerializedCodeData`. */
const FLAGS_AT = 12;

/**
 * Only with a fixed seed for the hashes of strings, V8 makes the same cache of the same source; and then wants nobody
 * without that flag to use it, although it computes all hashes again in any case: each process has another seed.
 *
 * Throws when V8 does not take what comes out of it, as another version of it might.
 */
export function forAnyHashSeed(cachedData: Buffer, { name, source }: { name: string; source: string }): Buffer {
  const flags = new Script('').createCachedData().subarray(FLAGS_AT, FLAGS_AT + 4);
  const patched = Buffer.concat([cachedData.subarray(0, FLAGS_AT), flags, cachedData.subarray(FLAGS_AT + 4)]);
  if (new Script(source, { filename: name, cachedData: patched }).cachedDataRejected) {
    throw new Error(`V8 does not take the cached code of ${name}; has the format changed?`);
  }
  return patched;
}
