/** An API server with one Service, at the port that is given, until it is killed. */
import { FakeApiServer } from '../../fakes/fake-api-server.ts';

const api = await FakeApiServer.start({ port: Number(process.argv[2]) });
api.set({
  kind: 'Service',
  apiVersion: 'v1',
  metadata: { name: 'web', namespace: 'shop' },
  spec: { clusterIP: '10.96.0.100', ports: [{ port: 80, protocol: 'TCP' }] },
} as never);
