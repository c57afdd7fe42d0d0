/** A table in Markdown; its cells are Markdown, too. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  return [head, head.map(() => '---'), ...rows]
    .map((cells) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`)
    .join('\n');
}

export function code(text: string): string {
  return text === '' ? '' : `\`${text}\``;
}

/** Words of the program, none of which is meant as a tag, or as emphasis. */
export function words(text: string): string {
  return text.replaceAll(/[\\<*]/g, '\\$&');
}

/** A text in lines of at most 120 columns. */
export function filled(text: string): string {
  return text.replaceAll(/(.{1,120})(?: |$)/g, '$1\n').trimEnd();
}
