/** The kernel's `xt_comment` holds 256 bytes with the final NUL. */
const MAX_COMMENT_BYTES = 255;

/**
 * Far above what we write. iptables-restore reads lines into a buffer of 10,240 bytes and takes what is left over for a
 * line of its own, so a mere length can do what a newline does.
 */
const MAX_SPEC_BYTES = 1024;

const WORDS = /^[A-Za-z0-9 ./:,_+![\]-]*$/;
const COMMENT = /^[A-Za-z0-9 ./:;_-]*$/;

/**
 * Why `spec` may not become a line of restore text, as the rest of the sentence "… because …"; `undefined` when it may.
 *
 * Names and addresses have been validated long before. This is the last line of defence: iptables-restore runs as root,
 * and one newline in a comment would install whatever follows it. So it lists what is allowed, not what is dangerous.
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

/** `-A CHAIN spec`. Throws for an unsafe spec: whoever makes rules must have left it out. */
export function appendLine(chain: string, spec: string): string {
  const reason = unsafeReason(spec);
  if (reason !== undefined) throw new Error(`A rule for ${chain} is kept out of the restore text, because ${reason}`);
  return `-A ${chain} ${spec}`;
}

/** Whether a rule that another program has spelled can be repeated in restore text without becoming two lines. */
export function fitsOnOneLine(spec: string): boolean {
  return spec.length <= MAX_SPEC_BYTES && !/[\n\r\0]/.test(spec);
}
