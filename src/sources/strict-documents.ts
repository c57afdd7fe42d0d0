import { ManifestSyntaxError, parseDocuments } from './manifests/parse.ts';

/**
 * The documents of a YAML or JSON text as plain values, with no key twice. Throws an error whose message is a clause for
 * the user.
 */
export function strictDocuments(text: string): unknown[] {
  // The short way for JSON lets a key be there twice; after a document marker it is taken for YAML, on the same line.
  const yaml = /^\s*\{/.test(text) ? `--- ${text}` : text;
  try {
    return parseDocuments(yaml).map(({ value }) => value);
  } catch (error) {
    if (!(error instanceof ManifestSyntaxError)) throw error;
    throw new Error(`line ${error.line}: ${error.message}`);
  }
}
