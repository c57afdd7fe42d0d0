import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { ProxyProcess } from '../netns/proxy.ts';
import { type Cluster, NODE_NAME } from './cluster.ts';

/**
 * In a mount namespace that `ip netns exec` has made: lays over the file system what is in the folder `$1`, and becomes
 * the program with the capabilities `$2` and no other.
 */
const AS_POD = `
files=$1
bounding=$2
shift 2
mount -t tmpfs tmpfs /run
for folder in "$files"/*; do
  name=\${folder##*/}
  if [ "$name" != run ]; then
    mkdir -p "/run/below/$name/upper" "/run/below/$name/work"
    mount -t overlay -o "lowerdir=/$name,upperdir=/run/below/$name/upper,workdir=/run/below/$name/work" overlay "/$name"
  fi
  cp -r "$folder/." "/$name"
done
exec setpriv --bounding-set="$bounding" --no-new-privs "$@"
`;

interface Volume {
  readonly name: string;
  readonly configMap?: {
    readonly name: string;
    readonly items: readonly { readonly key: string; readonly path: string }[];
  };
  readonly hostPath?: { readonly path: string; readonly type: string };
}

interface Mount {
  readonly name: string;
  readonly mountPath: string;
  readonly subPath?: string;
}

/**
 * Starts the one container of a DaemonSet that the API server has, as the kubelet would: with its arguments and
 * environment, the token of its account, what it mounts (folders of the node are empty), and its capabilities. The
 * network is the node's.
 */
export async function startAsPod(cluster: Cluster, namespace: string, name: string): Promise<ProxyProcess> {
  const get = async (kind: string, name: string) =>
    JSON.parse(await cluster.kubectl(['get', kind, name, '--namespace', namespace, '--output=json']));
  const { spec } = (await get('daemonset', name)).spec.template;
  const [container] = spec.containers;

  const files = cluster.environment.temporary(`pod-${cluster.environment.number()}`);
  const write = (path: string, text: string) => {
    mkdirSync(dirname(join(files, path)), { recursive: true });
    writeFileSync(join(files, path), text);
  };
  const account = '/run/secrets/kubernetes.io/serviceaccount';
  const token = await cluster.kubectl(['create', 'token', spec.serviceAccountName, '--namespace', namespace]);
  write(`${account}/token`, token.trim());
  copyFileSync(cluster.plane.caFile, join(files, account, 'ca.crt'));
  for (const { name: volume, configMap, hostPath } of spec.volumes as Volume[]) {
    const mounts = (container.volumeMounts as Mount[]).filter(({ name }) => name === volume);
    const data = configMap === undefined ? {} : (await get('configmap', configMap.name)).data;
    for (const { mountPath, subPath } of mounts) {
      if (hostPath?.type === 'DirectoryOrCreate') mkdirSync(join(files, mountPath), { recursive: true });
      if (subPath !== undefined) write(mountPath, data[subPath]);
      else for (const { key, path } of configMap?.items ?? []) write(join(mountPath, path), data[key]);
    }
  }

  const values = new Map<string, string>(
    (container.env as { name: string; value?: string }[]).map(({ name, value }) => [name, value ?? NODE_NAME]),
  );
  const capabilities = container.securityContext.capabilities.add.map((each: string) => `+${each.toLowerCase()}`);
  return await cluster.environment.startProxy({
    source: (container.args as string[]).map((each) =>
      each.replaceAll(/\$\((\w+)\)/g, (_, name) => values.get(name) ?? ''),
    ),
    through: ['sh', '-euc', AS_POD, 'as-pod', files, ['-all', ...capabilities].join()],
  });
}
