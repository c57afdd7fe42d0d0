import type { FileReading } from './file-state.ts';
import { type ManifestDocument, readDocuments } from './objects.ts';
import { ManifestSyntaxError } from './parse.ts';
import { splitDocuments } from './split.ts';

/** Documents of a file by their text. */
export type KnownDocuments = ReadonlyMap<string, readonly ManifestDocument[]>;

/**
 * Reads a whole manifest file. Documents whose text is `known` are not parsed again, so that an edit costs what it
 * changes. `breathe` is awaited between documents: parsing is slow enough to be noticed by connections.
 */
export async function readManifest(
  { text, hash }: { readonly text: string; readonly hash: string },
  { known, breathe }: { readonly known: KnownDocuments; readonly breathe: () => Promise<void> },
): Promise<{ readonly reading: FileReading; readonly known: KnownDocuments }> {
  const documents: ManifestDocument[] = [];
  const seen = new Map<string, readonly ManifestDocument[]>();
  for (const chunk of splitDocuments(text)) {
    let found: readonly ManifestDocument[];
    try {
      found = known.get(chunk.text) ?? readDocuments(chunk.text);
    } catch (error) {
      if (!(error instanceof ManifestSyntaxError)) throw error;
      const line = chunk.line + error.line - 1;
      const document = documents.length + 1;
      return { reading: { status: 'unusable', err: error.message, content: hash, document, line }, known };
    }
    seen.set(chunk.text, found);
    for (const { line, objects } of found) documents.push({ line: chunk.line + line - 1, objects });
    await breathe();
  }
  return { reading: { status: 'read', documents }, known: seen };
}
