import type { Agent } from '../netns/agent.ts';
import { PATIENCE_MS } from '../netns/wait.ts';
import type { ControlPlane } from './control-plane.ts';

export const NAMESPACE = 'test';

const COLLECTIONS = {
  services: `/api/v1/namespaces/${NAMESPACE}/services`,
  endpoints: `/api/v1/namespaces/${NAMESPACE}/endpoints`,
  endpointslices: `/apis/discovery.k8s.io/v1/namespaces/${NAMESPACE}/endpointslices`,
  namespaces: '/api/v1/namespaces',
  nodes: '/api/v1/nodes',
} as const;
export type Collection = keyof typeof COLLECTIONS;

/** An object as the API server has it: what a test looks at differs from kind to kind. */
// biome-ignore lint/suspicious/noExplicitAny: the server's objects have many shapes
export type ApiObject = any;

/** A refusal of the API server. */
export class ApiRefusal extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(`${status}: ${message}`);
    this.status = status;
  }
}

/** An administrator's client of the real API server. There are no controllers: what a test wants, it writes itself. */
export class Admin {
  readonly #agent: Agent;
  readonly #plane: ControlPlane;

  constructor(agent: Agent, plane: ControlPlane) {
    this.#agent = agent;
    this.#plane = plane;
  }

  create(collection: Collection, object: object): Promise<ApiObject> {
    return this.request('POST', COLLECTIONS[collection], object);
  }

  get(collection: Collection, name: string): Promise<ApiObject> {
    return this.request('GET', `${COLLECTIONS[collection]}/${name}`);
  }

  /** A JSON merge patch. `name` may go on with a subresource: `web/status`. */
  patch(collection: Collection, name: string, patch: object): Promise<ApiObject> {
    return this.request('PATCH', `${COLLECTIONS[collection]}/${name}`, patch);
  }

  delete(collection: Collection, name: string): Promise<ApiObject> {
    return this.request('DELETE', `${COLLECTIONS[collection]}/${name}`);
  }

  /** Rejects with an {@link ApiRefusal}. */
  async request(method: string, path: string, body?: object): Promise<ApiObject> {
    const { status, body: text } = await this.#agent.call('https', {
      method,
      url: `${this.#plane.localServer}${path}`,
      caFile: this.#plane.caFile,
      headers: {
        authorization: `Bearer ${this.#plane.token('admin')}`,
        'content-type': method === 'PATCH' ? 'application/merge-patch+json' : 'application/json',
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      timeoutMs: PATIENCE_MS,
    });
    const object = JSON.parse(text);
    if (status >= 400) throw new ApiRefusal(status, object.message);
    return object;
  }
}
