import type { ServedSet } from '../../model/capture.ts';
import type { ServicePortName } from '../../model/service.ts';
import type { Table } from './iptables.ts';

/** A rule in one of our chains. */
export interface Rule {
  readonly table: Table;
  readonly chain: string;
  /** What follows `-A CHAIN `, spelled exactly as `iptables-save` prints it, so that dumps compare with `===`. */
  readonly spec: string;
  /** Absent for a rule that concerns all Service ports. */
  readonly owner?: ServicePortName;
}

/** For rules that send to a local port. Upstream's comment is the name alone. Names contain no blanks. */
export function portComment({ name, set }: ServedSet): string {
  return set === 'own' ? name : `${name} local`;
}

/** For the rule that closes a local port to clients that connect to it directly. */
export function closedPortComment(owner: ServedSet): string {
  return `${portComment(owner)} proxy port`;
}

/** For the rule that accepts health checks of load balancers (`pkg/proxy/iptables/proxier.go`). */
export function healthCheckComment(name: ServicePortName): string {
  return `${name} health check node port`;
}

/** For the rule that remembers a local port. `seconds` since 1970. */
export function retiredComment(owner: ServedSet, seconds: number): string {
  return `${portComment(owner)} retired at ${seconds}`;
}

/** The kernel's `xt_comment` holds 256 bytes with the final NUL. */
const MAX_COMMENT_BYTES = 255;

/**
 * iptables-restore reads the rest of a line beyond 10,240 bytes as another line, so excess length can do what a newline
 * does. Our own rules are far shorter.
 */
const MAX_SPEC_BYTES = 1024;

const WORDS = /^[A-Za-z0-9 ./:,_+![\]-]*$/;
const COMMENT = /^[A-Za-z0-9 ./:;_-]*$/;

/**
 * Why `spec` must not become a line of restore text, as the rest of "… because …"; `undefined` for a safe one.
 *
 * Names and addresses are validated before. This is the last line of defence: iptables-restore runs as root, and a
 * newline in a comment would install whatever follows it. So this lists what is allowed, not what is dangerous.
 */
export function unsafeReason(spec: string): string | undefined {
  if (spec.length > MAX_SPEC_BYTES) return `it is longer than ${MAX_SPEC_BYTES} bytes`;
  const parts = spec.split('"');
  const [before = '', comment = '', after = ''] = parts;
  if (parts.length !== 1 && (parts.length !== 3 || !before.endsWith('--comment '))) {
    return 'its quotes enclose something other than one comment';
  }
  if (!WORDS.test(before) || !WORDS.test(after)) return 'it holds a character that no rule of ours needs';
  if (!COMMENT.test(comment)) return 'its comment holds a character that no name may have';
  if (comment.length > MAX_COMMENT_BYTES) return `its comment is longer than ${MAX_COMMENT_BYTES} bytes`;
  return undefined;
}

/** Throws for an unsafe spec: callers must leave it out. */
export function appendLine(chain: string, spec: string): string {
  const reason = unsafeReason(spec);
  if (reason !== undefined) throw new Error(`A rule for ${chain} is kept out of the restore text, because ${reason}`);
  return `-A ${chain} ${spec}`;
}

/** Whether restore text can repeat another program's rule without making it two lines. */
export function fitsOnOneLine(spec: string): boolean {
  return spec.length <= MAX_SPEC_BYTES && !/[\n\r\0]/.test(spec);
}
