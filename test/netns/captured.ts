/** A Service port at one of its addresses. */
export interface CapturedPortal {
  readonly address: string;
  readonly protocol: string;
  readonly port: number;
  /** `test/name` or `test/name:port`. */
  readonly name: string;
  readonly localPort: number;
}

/** What the proxy has in the kernel of one node to capture packets, in the words of no method. */
export interface Captured {
  /** One line for each part, without what it remembers of former local ports. */
  ours(family?: 4 | 6): Promise<readonly string[]>;
  /** What packets from other machines and pods meet. */
  portals(family?: 4 | 6): Promise<readonly CapturedPortal[]>;
  /** Takes all of it away, and what other programs have there. */
  flush(): Promise<void>;
}
