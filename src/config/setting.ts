import type { FieldType } from './field-types.ts';
import { oneOf } from './values.ts';

/** One thing that can be set, on the command line or in a file that `--config` names. */
export interface Setting<T> {
  /** What applies when nobody says anything, in the form a user would write it. */
  readonly fallback: readonly string[];
  /** Takes every occurrence in order. Throws {@link UsageError}. */
  readonly parse: (occurrences: readonly string[]) => T;
  readonly field?: Field<T>;
}

/** Where a KubeProxyConfiguration (`kubeproxy.config.k8s.io/v1alpha1`) says the same. */
export interface Field<T> {
  /** `iptables.syncPeriod` */
  readonly path: string;
  readonly type: FieldType<T>;
  /** A flag counts in spite of the file: upstream's rule for the name of the node and for everything about the log. */
  readonly flagWins?: true;
}

/** A setting with an effect, and how `--help` shows it. */
export interface Flag<T> extends Setting<T> {
  readonly group: string;
  readonly describe: string;
  /** What `--help` shows in place of an empty fallback. */
  readonly fallbackText?: string;
  /** `--flag` alone stands for `--flag=true`. */
  readonly isSwitch?: true;
  /** All that its value can be, for a shell to complete. */
  readonly choices?: readonly string[];
}

/** A setting of kube-proxy's that has no effect here: its value is checked, and one that is not the default is told. */
export interface AcceptedSetting<T> extends Setting<T> {
  /** What it belongs to in kube-proxy: "ipvs mode", "klog". */
  readonly of: string;
  readonly isSwitch?: true;
}

/** With one value; given twice, the last wins, as with kube-proxy's pflag. */
export function single<T, Rest extends object>(
  fallback: string,
  parse: (text: string) => T,
  rest: Rest & { readonly field?: Field<NoInfer<T>> },
): Setting<T> & Rest {
  return { ...rest, fallback: [fallback], parse: (occurrences) => parse(occurrences.at(-1) ?? fallback) };
}

/** One of a few words. */
export function choice<const T extends string, Rest extends object>(
  fallback: NoInfer<T>,
  choices: readonly T[],
  rest: Rest & { readonly field?: Field<NoInfer<T>> },
): Setting<T> & Rest & { readonly choices: readonly T[] } {
  return { ...single(fallback, oneOf(...choices), rest), choices };
}

/** May be repeated, each time with one value or several between commas. */
export function list<T, Rest extends object>(
  parse: (text: string) => T,
  rest: Rest & { readonly field?: Field<readonly NoInfer<T>[]> },
): Setting<readonly T[]> & Rest {
  return {
    ...rest,
    fallback: [],
    parse: (occurrences) =>
      occurrences.flatMap((text) => (text === '' ? [] : text.split(','))).map((text) => parse(text.trim())),
  };
}

export function at<T>(path: string, type: FieldType<T>): Field<T> {
  return { path, type };
}
