import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

export interface StagedFile {
  readonly path: string;
  readonly content: string | Buffer;
  readonly mode: number;
}

/** Gives `use` a folder that holds the files, with modes that do not depend on the umask; so have the folders in it. */
export async function withStage(
  files: readonly StagedFile[],
  use: (folder: string) => Promise<unknown>,
): Promise<void> {
  const stage = mkdtempSync(join(tmpdir(), 'stage-'));
  try {
    chmodSync(stage, 0o755);
    for (const { path, content, mode } of files) {
      const target = join(stage, path);
      mkdirSync(dirname(target), { recursive: true });
      writeFileSync(target, content);
      chmodSync(target, mode);
      for (let folder = dirname(target); folder !== stage; folder = dirname(folder)) chmodSync(folder, 0o755);
    }
    await use(stage);
  } finally {
    rmSync(stage, { recursive: true });
  }
}
