/** Text that is HTML already. Made by {@link html} alone, so that nothing gets into a page unescaped by oversight. */
export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

export type Content = Html | string | number | undefined | readonly Content[];

/** Fills a template: what is put into it is escaped unless it is {@link Html}; `undefined` is nothing. Attributes need quotes. */
export function html(parts: TemplateStringsArray, ...contents: readonly Content[]): Html {
  return new Html(String.raw({ raw: parts }, ...contents.map(textOf)));
}

function textOf(content: Content): string {
  if (content instanceof Html) return content.text;
  if (typeof content === 'string') return escapeHtml(content);
  if (typeof content === 'number') return String(content);
  return content === undefined ? '' : content.map(textOf).join('');
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => ENTITIES[character] ?? '');
}
