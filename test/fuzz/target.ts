import type { TestContext } from 'node:test';
import type { Draws } from '../support/draws.ts';

/** A part of the program that reads what others have written. */
export interface Target {
  /** Inputs to begin with, beside those in the corpus. */
  readonly seeds?: readonly Buffer[];
  /** Another input, made of `known` ones, at least one. */
  make(known: readonly Buffer[], draws: Draws): Buffer;
  /** Throws or rejects when the program does not do what it should. Depends on the input alone. */
  run(input: Buffer): void | Promise<void>;
}

/** What a module of `targets/` exports as `open`. `t` takes what is to be done in the end. */
export type OpenTarget = (t: Pick<TestContext, 'after'>) => Target | Promise<Target>;

export const TARGETS = [
  'objects',
  'manifests',
  'kubeconfigs',
  'configurations',
  'control',
  'hand-over',
  'http',
  'dumps',
  'netlink',
] as const;
