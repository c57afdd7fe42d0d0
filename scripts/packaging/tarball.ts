import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { type StagedFile, withStage } from './stage.ts';

/** One thread and no name or time in its header, so that the bytes are always the same. */
const COMPRESSION = 'gzip --no-name -6';

/**
 * The same input gives the same bytes. No folder is in it by itself: unpacked, it would give those that are there
 * already, like /usr/local/lib, its own owner and mode.
 */
export async function writeTarball(file: string, files: readonly StagedFile[], epoch: number): Promise<void> {
  const paths = files.map(({ path }) => path).sort();
  const headers = ['--format=ustar', `--mtime=@${epoch}`, '--owner=0', '--group=0', '--numeric-owner'];
  const compression = ['--use-compress-program', COMPRESSION];
  await withStage(files, (stage) =>
    promisify(execFile)('tar', [
      '--create',
      '--file',
      file,
      ...headers,
      ...compression,
      '--directory',
      stage,
      ...paths,
    ]),
  );
}
