/** Where the API server is, and with what right we ask it. Holds secrets: never to be logged. */
export interface Access {
  /** `http:` or `https:`; may have a path, as behind Rancher. */
  readonly server: URL;
  readonly tls: TlsMaterial;
  readonly headers: Readonly<Record<string, string>>;
  /** The URL of an HTTP proxy to go through. Without it, {@link environmentProxy} says. */
  readonly proxy?: string;
}

/** Certificates and keys are PEM. */
export interface TlsMaterial {
  /** Without it, the certificate authorities that the machine trusts count. */
  readonly ca?: string | Buffer;
  readonly cert?: string | Buffer;
  readonly key?: string | Buffer;
  /** The name to expect in the server's certificate instead of its host's. */
  readonly serverName?: string;
  /** `insecure-skip-tls-verify`. */
  readonly skipVerify: boolean;
}

/** Asked before every request, so that whatever rotates is noticed: requests are few, files are small. */
export interface AccessSource {
  /** Rejects with an {@link ApiError} `credentials`. */
  current(): Promise<Access>;
  /** The server did not accept what {@link current} gave (401): nothing of it may come from a cache next time. */
  refused(): void;
}

/** Something in the configuration that only the user can mend. The message is one sentence. */
export class AccessConfigError extends Error {
  override readonly name = 'AccessConfigError';
}

/** Throws {@link AccessConfigError}; `what` says where the URL comes from. */
export function parseServerUrl(text: string, what: string): URL {
  const url = URL.parse(text.includes('://') ? text : `http://${text}`);
  if (url === null || (url.protocol !== 'https:' && url.protocol !== 'http:') || url.hostname === '') {
    throw new AccessConfigError(`${what} is no URL of an API server; expected one like https://192.0.2.1:6443`);
  }
  if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '') {
    throw new AccessConfigError(`${what} may have a host, a port and a path, and nothing else`);
  }
  return url;
}
