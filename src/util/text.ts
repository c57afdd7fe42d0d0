/** The message of any thrown value, for a log line or the end of a sentence. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** For an error that only a defect can cause. */
export function stackOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

/** `1 port`, `2 ports`. */
export function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`;
}

/** `a, b and 5 more`: at most `max` are named. */
export function listed(names: readonly string[], max: number): string {
  const more = names.length > max ? ` and ${names.length - max} more` : '';
  return `${names.slice(0, max).join(', ')}${more}`;
}

/** Control and invisible formatting characters, line and paragraph separators: what breaks a line or fools a reader. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/**
 * Makes text from the network safe for a terminal and for one line: newlines, escape sequences and characters that
 * change the reading direction become `\u000a` and the like. Valid within JSON strings too.
 */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, (character) =>
    character
      .split('')
      .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
      .join(''),
  );
}

/**
 * An error of a socket without the address that its reader sees beside it: `connect ECONNREFUSED 10.0.0.1:80` is
 * `connect ECONNREFUSED`. `name`: the address with or without a port; Node writes it without brackets.
 */
export function withoutAddress(text: string, name: string): string {
  const forms = [name, name.replace(/[[\]]/g, '')].map((form) => form.replace(/[^\w:]/g, '\\$&'));
  return text.replace(new RegExp(` (?:${forms.join('|')})(?::\\d+)?(?!\\w|[.:]\\w)`), '');
}

/** Of PEM, tokens, passwords, and credentials in URLs; what is around them is left. */
const SECRETS: readonly RegExp[] = [
  /(?<=-----BEGIN [A-Z ]+-----)[\s\S]*?(?=-----END|$)/g,
  /\beyJ[\w-]+(?:\.[\w-]+)*/g,
  /(?<=:\/\/)[^/\s"'@]+(?=@)/g,
  /\b(?:gh[oprsu]_|github_pat_|AKIA|ASIA)\w+/g,
  /(?<=(?:token|passw(?:or)?d|pass|pwd|secret|key|-data)["']?\s*[:=]\s*)(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;"'}]+)/gi,
  /(?<=(?:token|passw(?:or)?d|secret|api-?key|bearer)\s+)[^\s,;"'}]+/gi,
  /(?<=\bauthorization["']?\s*[:=]\s*["']?)[^"'\n]+/gi,
  /\b[A-Za-z0-9+/]{60,}={0,2}/g,
];

/** For what leaves this machine. It removes too much rather than too little. */
export function withoutSecrets(text: string): string {
  return SECRETS.reduce((rest, secret) => rest.replace(secret, '[removed]'), text);
}
