import { Script } from 'node:vm';

/** A module of the bundle: the text of a function of `exports`, `require` and `module`. */
export interface ModuleText {
  readonly source: string;
  /** What V8 made of it earlier, so that it need not read all of it again. */
  readonly cachedData?: Buffer;
}

type Module = { exports: unknown };
type ModuleFunction = (exports: unknown, require: (path: string) => unknown, module: Module) => void;

/** Modules that are each compiled when they are first required, so what a run does not need costs it nothing. */
export class Modules {
  readonly #read: (name: string) => ModuleText;
  readonly #modules = new Map<string, Module>();
  /** What has been compiled so far. */
  readonly scripts = new Map<string, Script>();

  constructor(read: (name: string) => ModuleText) {
    this.#read = read;
  }

  readonly require = (path: string): unknown => {
    if (!path.startsWith('./')) return builtin(path);
    const name = path.slice(2);
    let module = this.#modules.get(name);
    if (module === undefined) {
      module = { exports: {} };
      // Known before it has run, as modules that need each other expect.
      this.#modules.set(name, module);
      const run: ModuleFunction = this.compile(name).runInThisContext();
      try {
        run(module.exports, this.require, module);
      } catch (error) {
        // Who asks next must not get the half of it.
        this.#modules.delete(name);
        throw error;
      }
    }
    return module.exports;
  };

  compile(name: string): Script {
    const { source, cachedData } = this.#read(name);
    const script = new Script(source, { filename: name, ...(cachedData && { cachedData }) });
    this.scripts.set(name, script);
    return script;
  }
}

/** Nothing from the disk, which a package may ask for that can do with it or without. */
function builtin(name: string): unknown {
  const module = process.getBuiltinModule(name);
  if (module === undefined) throw Object.assign(new Error(`no module ${name}`), { code: 'MODULE_NOT_FOUND' });
  return module;
}
