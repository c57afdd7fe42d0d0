import { type ParsedDocument, parseDocuments } from './parse.ts';

/**
 * The documents of a YAML or JSON text, with no key twice. Throws an error whose message is a clause for the user, and
 * which has its `line`.
 */
export function strictDocuments(text: string): readonly ParsedDocument[] {
  // The short way for JSON lets a key be there twice; after a document marker it is taken for YAML, on the same line.
  return parseDocuments(/^\s*\{/.test(text) ? `--- ${text}` : text);
}
