/**
 * JSON values as YAML blocks, keys sorted; ends with a newline. Strings are quoted as in JSON, which YAML reads alike,
 * so that none of them is taken for a number or a truth value.
 */
export function yaml(value: { readonly [key: string]: unknown }): string {
  return `${lines(value).join('\n')}\n`;
}

function lines(value: object): string[] {
  if (Array.isArray(value)) return value.map((item) => `- ${JSON.stringify(item)}`);
  return Object.entries(value)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .flatMap(([key, item]) => {
      const name = /^[A-Za-z_][A-Za-z0-9_]*$/.test(key) ? key : JSON.stringify(key);
      const isBlock = typeof item === 'object' && item !== null && Object.keys(item).length > 0;
      return isBlock ? [`${name}:`, ...lines(item).map((line) => `  ${line}`)] : [`${name}: ${JSON.stringify(item)}`];
    });
}
