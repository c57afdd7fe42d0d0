/** What whatever was thrown says, for a log line or the end of a sentence. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
