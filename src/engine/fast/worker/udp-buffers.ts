import { DatagramInbox } from '../../../sys/datagram-inbox.ts';
import type { EventLoop } from './event-loop.ts';
import { UdpReplies } from './udp-replies.ts';

/** Datagrams read with one call. */
const INBOX_CAPACITY = 64;

/** Room for datagrams, which the UDP ports of a worker share: each uses it within one event. */
export class UdpBuffers {
  readonly inbox = new DatagramInbox(INBOX_CAPACITY);
  readonly replies: UdpReplies;

  constructor(loop: EventLoop) {
    this.replies = new UdpReplies(loop);
  }
}
