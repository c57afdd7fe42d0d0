import type { ManifestsConfig, StateConfig } from '../config/config.ts';
import { VERSION } from '../config/version.ts';
import { allLocalAddresses } from '../kernel/addresses.ts';
import { readIfThere } from '../kernel/files.ts';
import type { ApiServers } from '../kubernetes/api-servers.ts';
import type { KubernetesSource } from '../kubernetes/kubernetes-source.ts';
import { ManifestSource } from '../manifests/manifest-source.ts';
import type { Address } from '../model/address.ts';
import type { Finding } from '../model/finding.ts';
import { DISK } from '../state/disk.ts';
import type { Provenance } from '../state/format.ts';
import { LastState } from '../state/last-state.ts';
import { reportUnusable, StateFile } from '../state/state-file.ts';
import { StateKeeper, type StateKeeperOptions } from '../state/state-keeper.ts';
import type { Log } from '../util/log.ts';
import { systemClock as clock } from '../util/system-clock.ts';
import type { SourceSetup } from './source.ts';

/** What is kept on disk of a source. */
export interface KeptState {
  /** The time of the state on disk while that is served, in milliseconds since 1970. */
  servedOf(): number | undefined;
  /** The state on disk is to be served when the source does not say in time what there is. */
  fallBackLater(): void;
  /** Resolves when it is known which endpoints are doubtful, and where they are, as far as that can be had soon. */
  settled(): Promise<void>;
  /** A dial to this address failed. */
  endpointFailed(address: Address): void;
  /** What is wrong with the file. */
  finding(): Finding | undefined;
  /** From `start` on, this process writes it, and no other. */
  readonly keeper: Pick<StateKeeper, 'start' | 'flush' | 'stop'>;
}

/** Has the last state of this API server kept, and served when it does not answer. */
export async function keepLastState(
  server: KubernetesSource,
  api: Pick<ApiServers, 'cluster' | 'recall'>,
  { directory, waitMs, maxAgeMs, criSocket }: StateConfig,
  { nodeName: node, log }: Pick<SourceSetup, 'nodeName' | 'log'>,
): Promise<{ readonly source: LastState; readonly state: KeptState }> {
  const { file, keeper } = keep(directory, log, {
    of: () => ({
      node,
      source: 'kubernetes',
      ...(api.cluster !== undefined && { cluster: api.cluster }),
      bootId: source.bootId,
    }),
    contents: () => source.contents(),
    isCurrent: () => server.status().connected,
  });
  const source = new LastState({
    source: server,
    file,
    node,
    cluster: () => api.cluster,
    waitMs,
    maxAgeMs,
    bootId: currentBootId(),
    localAddresses: allLocalAddresses,
    runtime:
      criSocket === undefined
        ? undefined
        : new (await import('../cri/container-runtime.ts')).ContainerRuntime(criSocket),
    onChange: () => keeper.changed(),
    onRecall: (objects) => api.recall(objects),
    clock,
    log,
  });
  const state: KeptState = {
    servedOf: () => source.servedOf,
    fallBackLater: () => source.fallBackLater(),
    settled: () => source.settled(),
    endpointFailed: (address) => source.endpointFailed(address),
    finding: () => file.finding,
    keeper,
  };
  return { source, state };
}

/** A source that begins with the last good state of each file that cannot be used now, and has it kept. */
export async function keepLastGoodManifests(
  config: ManifestsConfig,
  { directory, maxAgeMs }: StateConfig,
  { nodeName: node, log }: Pick<SourceSetup, 'nodeName' | 'log'>,
): Promise<{ readonly source: ManifestSource; readonly state: KeptState }> {
  const of = { node, source: 'manifests', bootId: currentBootId() } as const;
  const { file, keeper } = keep(directory, log, {
    of: () => of,
    contents: () => source.contents(),
    isCurrent: () => true,
  });
  const saved = await file.read(of, maxAgeMs).catch((error: unknown) => reportUnusable(error, file, log));
  const onChange = () => keeper.changed();
  const source = new ManifestSource({ ...config, ...(saved && { saved: saved.objects }), onChange, clock, log });
  const finding = () => file.finding;
  const nothing = {
    servedOf: () => undefined,
    fallBackLater: () => {},
    settled: async () => {},
    endpointFailed: () => {},
  };
  return { source, state: { ...nothing, finding, keeper } };
}

interface Kept extends Pick<StateKeeperOptions, 'contents' | 'isCurrent'> {
  readonly of: () => Provenance;
}

/** The file in this directory, and who writes it. */
function keep(directory: string, log: Log, { of, ...kept }: Kept) {
  const file = new StateFile({ directory, files: DISK, clock });
  return { file, keeper: new StateKeeper({ file, program: VERSION, provenance: of, ...kept, clock, log }) };
}

/** Of this start of the machine. */
function currentBootId(): string {
  return readIfThere('/proc/sys/kernel/random/boot_id')?.trim() ?? '';
}
