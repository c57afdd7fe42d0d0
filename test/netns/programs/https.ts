import { readFileSync } from 'node:fs';
import { Agent, request } from 'node:https';

const agents = new Map<string, Agent>();

/** An API server ends what rests for 90 s: not at the moment in which it is used again. */
const REST_MS = 30_000;

export interface HttpsRequest {
  readonly method?: string;
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** PEM. Read anew for each request. */
  readonly caFile: string;
  readonly timeoutMs?: number;
}

/** One request over a pool of kept connections. */
export async function https(args: HttpsRequest): Promise<{ status: number; body: string }> {
  const ca = readFileSync(args.caFile, 'utf8');
  const agent = agents.get(ca) ?? new Agent({ ca, keepAlive: true, maxSockets: 32, timeout: REST_MS });
  agents.set(ca, agent);
  const { method = 'GET', url, headers = {}, body, timeoutMs = 10_000 } = args;
  const signal = AbortSignal.timeout(timeoutMs);
  return new Promise((resolve, reject) => {
    const sent = request(url, { method, headers, agent, signal }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk;
      });
      response.on('end', () => resolve({ status: response.statusCode ?? 0, body: text }));
      response.on('error', reject);
    });
    sent.on('error', reject);
    sent.end(body);
  });
}
