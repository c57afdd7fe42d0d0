import { keysOf, type ReplyPath } from '../../../sys/datagram-inbox.ts';
import { AwaySession } from './away-session.ts';
import type { FailedFlow, FlowClient, Link, Over, PassId } from './link.ts';
import type { Port } from './port.ts';
import type { FlowRecord } from './records.ts';
import type { Target } from './target.ts';
import type { UdpReplay } from './udp-replay.ts';

/** The home's part of a UDP port. */
export interface FlowHome {
  readonly port: Port;
  /** It is not away any more. */
  onReturned(away: UdpAwayFlow, back?: { readonly record: FlowRecord; readonly isSilent: boolean }): void;
  onFailedElsewhere(away: UdpAwayFlow, why: FailedFlow): void;
}

/** What the home knows of a flow that another worker carries. */
export class UdpAwayFlow extends AwaySession {
  readonly localKey: number | string;
  readonly clientKey: number | string;
  readonly hasRetired = false;
  readonly path: ReplyPath;
  /** Which has picked its endpoint, while nobody had answered. */
  readonly replay: UdpReplay | undefined;
  /** Who has got datagrams of its client since: links, or `undefined` for the home. */
  readonly wanting = new Set<Link | undefined>();
  id: PassId = 0;
  readonly #home: FlowHome;
  readonly #link: Link;

  constructor(setup: {
    readonly home: FlowHome;
    readonly link: Link;
    readonly target: Target;
    readonly path: ReplyPath;
    readonly replay: UdpReplay | undefined;
  }) {
    super(setup.home.port, setup.target);
    const { local, client } = keysOf(setup.path);
    this.localKey = local;
    this.clientKey = client;
    this.path = setup.path;
    this.replay = setup.replay;
    this.#home = setup.home;
    this.#link = setup.link;
  }

  /** Asks for it, once. */
  wantedBy(link: Link | undefined, client: FlowClient): void {
    this.wanting.add(link);
    if (this.wanting.size === 1) this.#link.send({ kind: 'recall', id: this.id, client });
  }

  onOver(over: Over): void {
    this.uncount();
    if (over.kind === 'flow-failed') this.#home.onFailedElsewhere(this, over);
    else this.#home.onReturned(this, over.kind === 'flow-back' ? over : undefined);
  }
}
