/** What the user must mend on the command line. The message is a clause that follows the flag and its value. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}
