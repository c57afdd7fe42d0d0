/**
 * What the state needs of a file system. Each call is one step, and the machine may lose its power between any two:
 * test/state/power-loss.test.ts tries them all.
 */
export interface Files {
  /** Makes the directory where it is missing. Rejects where another user could replace what is in it. */
  prepare(directory: string): Promise<void>;
  /** `undefined` where there is none. Rejects for what is no file of this user alone. */
  read(path: string): Promise<FileContent | undefined>;
  /** A new file that only its owner may read. Rejects where there is one already. */
  create(path: string): Promise<NewFile>;
  rename(from: string, to: string): Promise<void>;
  /** Makes renames last. */
  syncDirectory(path: string): Promise<void>;
  /** Nothing happens where there is none. */
  remove(path: string): Promise<void>;
  /** Sets the time of its last change, in milliseconds since 1970. */
  touch(path: string, at: number): Promise<void>;
}

export interface FileContent {
  readonly bytes: Buffer;
  /** Milliseconds since 1970. */
  readonly changedAt: number;
}

export interface NewFile {
  write(bytes: Buffer): Promise<void>;
  /** Makes what was written last. */
  sync(): Promise<void>;
  close(): Promise<void>;
}
