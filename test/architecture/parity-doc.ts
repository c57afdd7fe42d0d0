/** A test that shows what a row says. */
export interface Proof {
  /** From the root of the project. */
  readonly file: string;
  readonly title: string;
}

export interface ParityRow {
  readonly line: number;
  readonly feature: string;
  readonly answer: string;
  /** How it is here, or why it is not. */
  readonly remark: string;
  readonly proofs: readonly Proof[];
  /** What the last cell holds beside proofs. */
  readonly rest: string;
}

const HEAD = '| feature | here | how, or why not | shown by |';
const PROOF = /\[[^\]]+\]\(\.\.\/(test\/[^)]+)\) “([^”]+)”/g;

/** The rows of the tables of docs/parity.md. Throws where one has not the cells of its head. */
export function parityRows(document: string): ParityRow[] {
  let isTable = false;
  return document.split('\n').flatMap((text, index) => {
    isTable = text === HEAD || (isTable && text.startsWith('|'));
    if (!isTable || text === HEAD || /^\|[-| ]+\|$/.test(text)) return [];
    const line = index + 1;
    const cells = text.split('|').map((cell) => cell.trim());
    if (cells.length !== 6) throw new Error(`line ${line}: ${cells.length - 2} cells; expected 4`);
    const [, feature = '', answer = '', remark = '', last = ''] = cells;
    const proofs = [...last.matchAll(PROOF)].map(([, file = '', title = '']) => ({ file, title }));
    return [{ line, feature, answer, remark, proofs, rest: last.replaceAll(PROOF, '').replaceAll('<br>', '').trim() }];
  });
}

/** What is wrong with a row by itself, as sentences. */
export function faultsOf({ line, feature, answer, remark, proofs, rest }: ParityRow): string[] {
  const faults = [
    feature === '' && 'names no feature',
    !['yes', 'no', 'differs'].includes(answer) && `answers "${answer}"; expected yes, no or differs`,
    answer !== 'yes' && remark === '' && `says ${answer} without saying how or why`,
    answer !== 'no' && proofs.length === 0 && `says ${answer} and names no test`,
    rest !== '' && `has "${rest}" where only tests are named`,
  ];
  return faults.flatMap((fault) => (fault === false ? [] : [`line ${line}: the row ${fault}`]));
}
