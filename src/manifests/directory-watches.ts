import { type FSWatcher, watch as fsWatch } from 'node:fs';
import type { Log } from '../util/log.ts';
import { messageOf } from '../util/text.ts';

type Watch = (directory: string, onChange: () => void) => FSWatcher;

/**
 * Wakes the scan when something in a directory changes (inotify). Only a help: what cannot be watched, or lies behind
 * a link to elsewhere, is found by the next regular scan.
 */
export class DirectoryWatches {
  readonly #onChange: () => void;
  readonly #log: Log;
  readonly #watch: Watch;
  readonly #watches = new Map<string, { readonly id: string; readonly watcher: FSWatcher }>();
  #hasFailed = false;

  constructor({
    onChange,
    log,
    watch = fsWatch,
  }: { readonly onChange: () => void; readonly log: Log; readonly watch?: Watch }) {
    this.#onChange = onChange;
    this.#log = log;
    this.#watch = watch;
  }

  /** Watches exactly these. A watch stays with its directory when that is renamed, hence the ids. */
  set(directories: ReadonlyMap<string, string>): void {
    for (const [path, { id }] of this.#watches) if (directories.get(path) !== id) this.#drop(path);
    for (const [path, id] of directories) if (!this.#watches.has(path)) this.#add(path, id);
  }

  close(): void {
    for (const path of this.#watches.keys()) this.#drop(path);
  }

  #add(path: string, id: string): void {
    try {
      const watcher = this.#watch(path, this.#onChange);
      watcher.on('error', (error) => {
        this.#failed(path, error);
        this.#drop(path);
      });
      this.#watches.set(path, { id, watcher });
    } catch (error) {
      this.#failed(path, error);
    }
  }

  #drop(path: string): void {
    this.#watches.get(path)?.watcher.close();
    this.#watches.delete(path);
  }

  /** Once: it is tried again with every scan, and what helps (fs.inotify.max_user_watches) helps all of them. */
  #failed(path: string, error: unknown): void {
    if (this.#hasFailed) return;
    this.#hasFailed = true;
    const err = messageOf(error);
    this.#log.warn('A directory of manifests cannot be watched; changes are found by looking for them', {
      file: path,
      err,
    });
  }
}
