import type { Endpoint } from '../../model/endpoint.ts';
import type { ConnectionView, Explanation, NodeView, Question, ServiceFilter, ServiceView } from '../../model/view.ts';

/*
 * One request a connection, one line each way at a time: the request, then a line for each piece of the answer, then
 * `end` or `error`. Lines are JSON and end with a newline.
 */

/** Goes up when a client of the version before would misread an answer. */
export const PROTOCOL_VERSION = 1;

/**
 * For a piece of the answer. A client that does not read gets nothing more, and nothing more is made for it: there is
 * room for few clients, and one that is stopped or hangs would keep its place for ever.
 */
export const READ_TIMEOUT_MS = 30_000;

/** What can be asked, and what each piece of the answer is. */
export interface Commands {
  readonly node: { readonly params: Nothing; readonly piece: NodeView };
  readonly services: { readonly params: ServiceFilter; readonly piece: readonly ServiceView[] };
  readonly connections: { readonly params: ServiceFilter; readonly piece: readonly ConnectionView[] };
  readonly explain: { readonly params: Question; readonly piece: Explanation };
  readonly drain: { readonly params: { readonly endpoint: Endpoint }; readonly piece: Nothing };
  readonly undrain: {
    readonly params: { readonly endpoint: Endpoint };
    readonly piece: { readonly wasDrained: boolean };
  };
  readonly 'log-level': { readonly params: { readonly verbosity: number }; readonly piece: Nothing };
}

export type Nothing = Readonly<Record<string, never>>;
export type CommandName = keyof Commands;

export type Request = {
  readonly [C in CommandName]: { readonly v: number; readonly command: C; readonly params: Commands[C]['params'] };
}[CommandName];

export type Answer<C extends CommandName> =
  | { readonly piece: Commands[C]['piece'] }
  | { readonly end: true }
  /** A sentence for people. */
  | { readonly error: string };

/** The client's side: asks the running program. Rejects with a sentence for the user. */
export interface Control {
  ask<C extends CommandName>(command: C, params: Commands[C]['params']): AsyncIterable<Commands[C]['piece']>;
}
