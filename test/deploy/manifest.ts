import { readFileSync } from 'node:fs';
import { loadAll } from 'js-yaml';

export const DAEMON_SET_FILE = new URL('../../deploy/kustomize/base/daemonset.yaml', import.meta.url);

/** The documents of a text in YAML. */
// biome-ignore lint/suspicious/noExplicitAny: manifests have many shapes
export function documentsOf(text: string): any[] {
  return loadAll(text);
}

/** The objects of `deploy/kustomize/base/daemonset.yaml` by kind. */
// biome-ignore lint/suspicious/noExplicitAny: manifests have many shapes
export function deployedObjects(): Map<string, any> {
  return new Map(documentsOf(readFileSync(DAEMON_SET_FILE, 'utf8')).map((object) => [object.kind, object]));
}

/** What the kubelet would start on this node: the DaemonSet's arguments. */
export function deployedArguments({ node }: { node: string }): string[] {
  const [{ args, env }] = deployedObjects().get('DaemonSet').spec.template.spec.containers;
  const values: Record<string, string> = { NODE_NAME: node };
  for (const { name, value } of env) values[name] ??= value;
  return (args as string[]).map((argument) => argument.replace(/\$\((\w+)\)/g, (_, name) => values[name] ?? ''));
}
