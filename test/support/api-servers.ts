import type { ApiServersSettings } from '../../src/kubernetes/open-access.ts';

/** No server, and what a test says nothing of. */
export const NO_API_SERVERS: Omit<ApiServersSettings, 'clock' | 'log'> = {
  kubeconfig: undefined,
  master: undefined,
  apiServers: [],
  apiServersFromCluster: false,
  random: () => 0,
  qps: 5,
  burst: 10,
  contentType: 'application/json',
  userAgent: 'test/1',
  env: {},
  metrics: { requestDone: () => {} },
  serviceAccountDirectory: '/nonexistent',
};
