import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** PEM. */
export interface Certificate {
  readonly cert: string;
  readonly key: string;
}

const CURVE = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

/** A certificate authority that signs what tests need. */
export class CertificateAuthority {
  readonly certificate: Certificate;

  constructor(name: string) {
    this.certificate = inDirectory((directory) => {
      openssl(
        directory,
        'req',
        '-x509',
        ...CURVE,
        '-subj',
        `/CN=${name}`,
        '-days',
        '2',
        '-keyout',
        'key',
        '-out',
        'cert',
      );
      return read(directory);
    });
  }

  /** `names` as in `IP:127.0.0.1,DNS:localhost`. */
  issue({ names = 'IP:127.0.0.1', isExpired = false, subject = 'server' } = {}): Certificate {
    return inDirectory((directory) => {
      writeFileSync(join(directory, 'ca.cert'), this.certificate.cert);
      writeFileSync(join(directory, 'ca.key'), this.certificate.key);
      writeFileSync(join(directory, 'index'), '');
      writeFileSync(join(directory, 'config'), `${CONFIG}subjectAltName=${names}\n`);
      openssl(directory, 'req', ...CURVE, '-subj', `/CN=${subject}`, '-keyout', 'key', '-out', 'request');
      const dates = isExpired ? ['-startdate', '20200101000000Z', '-enddate', '20200102000000Z'] : ['-days', '2'];
      const files = ['-cert', 'ca.cert', '-keyfile', 'ca.key', '-in', 'request', '-out', 'cert'];
      // Not `openssl x509`, which only learnt to set dates in 3.4.
      openssl(directory, 'ca', '-batch', '-notext', '-config', 'config', ...dates, ...files);
      return read(directory);
    });
  }
}

const CONFIG = `[ca]
default_ca=authority
[authority]
database=index
rand_serial=yes
new_certs_dir=.
default_md=sha256
policy=any
x509_extensions=extensions
[any]
commonName=supplied
[extensions]
`;

function openssl(directory: string, ...args: string[]): void {
  execFileSync('openssl', args, { cwd: directory, stdio: 'pipe' });
}

function read(directory: string): Certificate {
  return { cert: readFileSync(join(directory, 'cert'), 'utf8'), key: readFileSync(join(directory, 'key'), 'utf8') };
}

function inDirectory<T>(work: (directory: string) => T): T {
  const directory = mkdtempSync(join(tmpdir(), 'kup-certificates-'));
  try {
    return work(directory);
  } finally {
    rmSync(directory, { recursive: true });
  }
}
