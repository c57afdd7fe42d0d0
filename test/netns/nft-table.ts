import type { Namespace } from './topology.ts';

/** The proxy's nft table of IPv4 in one namespace. */
export class NftTable {
  readonly #namespace: Namespace;

  constructor(namespace: Namespace) {
    this.#namespace = namespace;
  }

  /** The lines of `nft list table`, without blanks around them; none without a table. */
  async lines(family: 'ip' | 'ip6' = 'ip'): Promise<readonly string[]> {
    const { stdout } = await this.#namespace.run(['nft', 'list', 'table', family, 'kube-userspace-proxy']);
    return stdout.split('\n').map((line) => line.trim());
  }

  /** The elements of one of its sets or maps, as nft prints them. */
  async elements(set: string): Promise<readonly string[]> {
    const { stdout } = await this.#namespace.run(['nft', 'list', 'map', 'ip', 'kube-userspace-proxy', set]);
    const [, list = ''] = /elements = \{([^}]*)\}/.exec(stdout) ?? [];
    return list
      .split(',')
      .map((element) => element.trim())
      .filter((element) => element !== '');
  }

  async flush(): Promise<void> {
    await this.#namespace.output(['nft', 'flush', 'ruleset']);
  }
}
