/** `entries` is gone when the table had to make room. */
export interface Table {
  entries: Uint16Array | undefined;
}

/**
 * The tables of all Service ports of one thread, whose total size is bounded: any tenant may ask for as many as it has
 * Services. Beyond that the oldest is dropped, and made again for its next client.
 */
export class MaglevTables {
  readonly #maxBytes: number;
  #bytes = 0;
  /** The oldest first. */
  readonly #tables = new Set<Table>();

  constructor(maxBytes = 32 << 20) {
    this.#maxBytes = maxBytes;
  }

  keep(entries: Uint16Array): Table {
    this.#bytes += entries.byteLength;
    for (const oldest of this.#tables) {
      if (this.#bytes <= this.#maxBytes) break;
      this.drop(oldest);
    }
    const table = { entries };
    this.#tables.add(table);
    return table;
  }

  drop(table: Table | undefined): void {
    if (table === undefined || !this.#tables.delete(table)) return;
    this.#bytes -= table.entries?.byteLength ?? 0;
    table.entries = undefined;
  }
}
