import { type IncomingHttpHeaders, type OutgoingHttpHeaders, request } from 'node:http';

export interface Reply {
  readonly status: number | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** One request on its own connection. Rejects when the answer is incomplete. */
export function ask(
  { address, port }: { readonly address: string; readonly port: number },
  path: string,
  method = 'GET',
  headers: OutgoingHttpHeaders = {},
): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const outgoing = request({ host: address, port, path, method, headers, agent: false }, (incoming) => {
      let body = '';
      incoming.setEncoding('utf8');
      incoming.on('error', reject);
      incoming.on('data', (text) => {
        body += text;
      });
      incoming.on('end', () => resolve({ status: incoming.statusCode, headers: incoming.headers, body }));
    });
    outgoing.on('error', reject);
    outgoing.end();
  });
}
