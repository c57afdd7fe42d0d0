import { readFileSync } from 'node:fs';
import { parseAllDocuments } from 'yaml';

export const DAEMON_SET_FILE = new URL('../../deploy/daemonset.yaml', import.meta.url);

/** The objects of `deploy/daemonset.yaml` by kind. */
// biome-ignore lint/suspicious/noExplicitAny: manifests have many shapes
export function deployedObjects(): Map<string, any> {
  const documents = parseAllDocuments(readFileSync(DAEMON_SET_FILE, 'utf8'), { strict: true });
  return new Map(
    documents.map((document) => {
      if (document.errors[0] !== undefined) throw document.errors[0];
      const object = document.toJS();
      return [object.kind, object];
    }),
  );
}

/** What the kubelet would start: the DaemonSet's arguments on this node, with another address of the API server. */
export function deployedArguments({ node, server }: { node: string; server?: string }): string[] {
  const [container] = deployedObjects().get('DaemonSet').spec.template.spec.containers;
  return (container.args as string[]).map((argument) =>
    server !== undefined && argument.startsWith('--master=')
      ? `--master=${server}`
      : argument.replace('$(NODE_NAME)', node),
  );
}

/** As `NET_ADMIN`. */
export function deployedCapabilities(): string[] {
  return deployedObjects().get('DaemonSet').spec.template.spec.containers[0].securityContext.capabilities.add;
}
