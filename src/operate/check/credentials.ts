import { X509Certificate } from 'node:crypto';
import type { TlsMaterial } from '../../kubernetes/access.ts';
import { type Finding, fail, ok, warn } from './finding.ts';

/** In which it should be renewed. */
const SOON_MS = 7 * 24 * 3_600_000;

export interface SecretFile {
  readonly path: string;
  /** As `stat` gives it; `undefined` when it cannot be had. */
  readonly mode: number | undefined;
}

/** Files with keys or tokens that everybody on this machine may read. */
export function checkSecretFiles(files: readonly SecretFile[]): readonly Finding[] {
  return files.flatMap(({ path, mode }) => {
    if (mode === undefined)
      return [fail(`${path} cannot be looked at`, 'check the path, and the rights of its directories')];
    if ((mode & 0o004) === 0) return [];
    return [warn(`${path} holds a secret and can be read by every user of this machine`, `chmod 600 ${path}`)];
  });
}

/** Whether the authority that is to have signed the server's certificate is one. What is none is passed over by TLS. */
export function checkAuthority({ ca }: Pick<TlsMaterial, 'ca'>): readonly Finding[] {
  if (ca === undefined || /^-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----/m.test(String(ca))) return [];
  return [
    fail(
      'what is to be the certificate authority of the server is no certificate in PEM',
      'mend certificate-authority(-data) of the kubeconfig',
    ),
  ];
}

/** How long the client certificate is valid, and whether its key is the one beside it. */
export function checkClientCertificate(
  { cert, key }: Pick<TlsMaterial, 'cert' | 'key'>,
  nowMs: number,
): readonly Finding[] {
  if (cert === undefined) return [];
  let certificate: X509Certificate;
  try {
    certificate = new X509Certificate(cert);
  } catch {
    return [
      fail('the client certificate is no certificate in PEM', 'mend client-certificate(-data) of the kubeconfig'),
    ];
  }
  if (key === undefined)
    return [fail('there is a client certificate without a key', 'add client-key(-data) to the kubeconfig')];
  const { validFrom, validTo, validFromDate, validToDate } = certificate;
  const leftMs = validToDate.getTime() - nowMs;
  if (leftMs <= 0)
    return [
      fail(
        `the client certificate has expired on ${validTo}`,
        'renew it (kubeadm certs renew, or the kubelet that rotates it)',
      ),
    ];
  if (validFromDate.getTime() > nowMs) {
    return [fail(`the client certificate is valid only from ${validFrom}`, "set this machine's clock")];
  }
  if (leftMs < SOON_MS) return [warn(`the client certificate expires on ${validTo}`, 'renew it')];
  return [ok(`the client certificate is valid until ${validTo}`)];
}
