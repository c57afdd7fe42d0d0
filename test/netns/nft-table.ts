import type { Captured, CapturedPortal } from './captured.ts';
import type { Namespace } from './topology.ts';

const TABLE = 'kube-userspace-proxy';

/** The proxy's nft tables in one namespace. */
export class NftTable implements Captured {
  readonly #namespace: Namespace;

  constructor(namespace: Namespace) {
    this.#namespace = namespace;
  }

  /** Runs `nft` with these words. */
  async must(command: string): Promise<string> {
    return await this.#namespace.output(['nft', ...command.split(' ')]);
  }

  async ours(family: 4 | 6 = 4): Promise<readonly string[]> {
    const { stdout } = await this.#namespace.run(['nft', '-s', 'list', 'table', ipOf(family), TABLE]);
    // The kernel lists the elements of a set in any order.
    const lists: string[] = [];
    const rest = stdout
      .replaceAll(/\tset retired \{[\s\S]*?\n\t\}\n/g, '')
      .replaceAll(/elements = \{([^}]*)\}/g, (_, list) => {
        lists.push(...elementsIn(list).sort());
        return '';
      });
    return [...rest.split('\n').map((line) => line.trim()), ...lists].filter((line) => line !== '');
  }

  async portals(family: 4 | 6 = 4): Promise<readonly CapturedPortal[]> {
    const { stdout } = await this.#namespace.run(['nft', 'list', 'map', ipOf(family), TABLE, 'portals']);
    return elementsIn(/elements = \{([^}]*)\}/.exec(stdout)?.[1] ?? '').map((element) => {
      const [, address = '', protocol = '', port, name = '', localPort] =
        /^(\S+) \. (\S+) \. (\d+) comment "([^" ]+)[^"]*" : (\d+)$/.exec(element) ?? [];
      return { address, protocol, port: Number(port), name, localPort: Number(localPort) };
    });
  }

  async flush(): Promise<void> {
    await this.must('flush ruleset');
  }
}

function elementsIn(list: string): string[] {
  return list
    .split(',')
    .map((element) => element.trim())
    .filter((element) => element !== '');
}

function ipOf(family: 4 | 6): 'ip' | 'ip6' {
  return family === 4 ? 'ip' : 'ip6';
}
