import { type EventEnvironment, postEvent } from './event.ts';

/**
 * Upstream's `Starting` event on the Node: who looks at a node's events sees that its proxy was restarted, and which
 * one it is: `program` is as `kube-userspace-proxy 1.2.3`. Resolves whatever happens.
 */
export async function reportStarting({
  program,
  ...environment
}: EventEnvironment & { program: string }): Promise<void> {
  const { node } = environment;
  // The kubelet's convention, and upstream's: the name in the place of the uid.
  const about = { kind: 'Node', name: node, uid: node };
  await postEvent({ type: 'Normal', reason: 'Starting', message: `Starting ${program}.`, about }, environment);
}
