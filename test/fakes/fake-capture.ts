import type { Capture, InstalledPort, Portal, PortalDelta, Problem, Synced } from '../../src/model/capture.ts';

/** Records portals and calls. Tests may let it fail, and hold it up. */
export class FakeCapture
  implements Pick<Capture, 'apply' | 'dropUnassigned' | 'sync' | 'isIntact' | 'installedPorts' | 'problems'>
{
  /** By name, after the last sync. */
  readonly installed = new Map<string, Portal>();
  readonly applied: PortalDelta[] = [];
  /** `sync`, `verify` and `canary`, and each with "done" when it has ended. */
  readonly calls: string[] = [];
  fault: Error | undefined;
  areIntact = true;
  leftPorts: readonly InstalledPort[] = [];
  #gate: Promise<void> = Promise.resolve();
  #pending: PortalDelta[] = [];

  /** Holds every following call up until the returned function is called. */
  hold(): () => void {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#gate = promise;
    return resolve;
  }

  apply(delta: PortalDelta): void {
    if (delta.upserted.length + delta.removed.length > 0) this.applied.push(delta);
    this.#pending.push(delta);
  }

  dropUnassigned(): void {}

  async sync({ verify }: { readonly verify: boolean }): Promise<Synced> {
    await this.#call(verify ? 'verify' : 'sync');
    for (const { upserted, removed } of this.#pending) {
      for (const name of removed) this.installed.delete(name);
      for (const portal of upserted) this.installed.set(portal.servicePort.name, portal);
    }
    this.#pending = [];
    return { flows: [], missed: [] };
  }

  async isIntact(): Promise<boolean> {
    await this.#call('canary');
    return this.areIntact;
  }

  async installedPorts(): Promise<readonly InstalledPort[]> {
    await this.#call('ports');
    return this.leftPorts;
  }

  problems(): readonly Problem[] {
    return [];
  }

  async #call(what: string): Promise<void> {
    this.calls.push(what);
    await this.#gate;
    this.calls.push(`${what} done`);
    if (this.fault !== undefined) throw this.fault;
  }
}
