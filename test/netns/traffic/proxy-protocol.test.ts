import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { before, describe, test } from 'node:test';
import type { ProxyProtocol } from '../../../src/model/service.ts';
import { listeningPorts, metric, NOBODY, testEnvironment, UDP } from '../harness.ts';
import { addIpv6, IPV6 } from '../ipv6.ts';
import { serviceObjects, sliceObject } from '../manifests.ts';
import {
  BRIDGE_ADDRESS,
  CLIENT_ADDRESS,
  type Namespace,
  NODE_ADDRESS,
  OUTSIDE_ADDRESS,
  POD_ADDRESSES,
} from '../topology.ts';
import { waitFor } from '../wait.ts';

/** Where the servers expect a header. */
const TARGET = 8090;

const SERVERS = ['nginx', 'haproxy'] as const;
type Server = (typeof SERVERS)[number];

const ANNOTATION = 'kube-userspace-proxy/proxy-protocol';

/** Logs who a client is and what it asked for. It believes headers of the node alone, as the operations manual says. */
const nginxConfig = (directory: string) => `
daemon off;
user root;
worker_processes 1;
pid ${directory}/nginx.pid;
error_log stderr;
events {}
http {
  ${['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((each) => `${each}_temp_path ${directory}/nginx-${each};`).join('\n  ')}
  set_real_ip_from ${BRIDGE_ADDRESS};
  set_real_ip_from ${IPV6.bridge};
  real_ip_header proxy_protocol;
  log_format seen '$remote_addr $remote_port $proxy_protocol_server_addr $proxy_protocol_server_port';
  access_log ${directory}/nginx.log seen;
  server {
    listen ${TARGET} proxy_protocol;
    listen [::]:${TARGET} proxy_protocol;
    location / { return 200; }
  }
}
`;

const HAPROXY_CONFIG = `
global
  log stdout format raw local0
defaults
  mode http
  log global
  timeout client 1m
  timeout connect 1m
  timeout server 1m
frontend web
  bind 0.0.0.0:${TARGET} accept-proxy
  bind [::]:${TARGET} v6only accept-proxy
  log-format "%ci %cp %fi %fp"
  http-request return status 200
`;

const CLUSTER_IPS = {
  'nginx v1': ['10.96.3.1', 'fd00:96::301'],
  'nginx v2': ['10.96.3.2', 'fd00:96::302'],
  'haproxy v1': ['10.96.3.3', 'fd00:96::303'],
  'haproxy v2': ['10.96.3.4', 'fd00:96::304'],
} as const;

const NODE_PORTS = { 'nginx v1': 30_301, 'nginx v2': 30_302, 'haproxy v1': 30_303, 'haproxy v2': 30_304 } as const;

describe('servers that expect the PROXY protocol', { timeout: 300_000 }, () => {
  const environment = testEnvironment({});
  const log = {} as Record<Server, () => string>;
  /** Below the ports that the kernel gives out: on the node, the proxy's own connections have those. */
  let lastPort = 20_000;

  before(async () => {
    await addIpv6(environment);
    await nodeFindsPods();
    const { pods, directory } = environment.topology;
    const [nginx, haproxy] = ['nginx.conf', 'haproxy.cfg'].map((name) => environment.temporary(name)) as [
      string,
      string,
    ];
    writeFileSync(nginx, nginxConfig(directory));
    writeFileSync(haproxy, HAPROXY_CONFIG);
    await start(pods[0], ['nginx', '-c', nginx, '-e', 'stderr']);
    const printed = await start(pods[1], ['haproxy', '-db', '-f', haproxy]);
    log.nginx = () => readFileSync(`${directory}/nginx.log`, 'utf8');
    log.haproxy = printed;
  });

  /** Four dials to two endpoints end after 3.75 s; neighbour discovery over IPv6 may take a few seconds more. */
  async function nodeFindsPods(): Promise<void> {
    for (const host of IPV6.pods) {
      const isFound = async () => {
        const attempts = [{ protocol: 'tcp', host, port: NOBODY }] as const;
        const [outcome] = await environment.node.call('outcomes', { attempts, timeoutMs: 10_000 });
        return outcome === 'ECONNREFUSED';
      };
      await waitFor(`the node to find ${host}`, isFound);
    }
  }

  /** Resolves when it listens, with what gives its output. */
  async function start(pod: Namespace, argv: readonly string[]): Promise<() => string> {
    const child = pod.spawn(argv, {}, ['ignore', 'pipe', 'pipe']);
    let [output, errors] = ['', ''];
    child.stdout?.on('data', (chunk) => {
      output += String(chunk);
    });
    child.stderr?.on('data', (chunk) => {
      errors += String(chunk);
    });
    const listens = async () => {
      if (child.exitCode !== null) throw new Error(`${argv[0]} has ended: ${errors}`);
      return (await listeningPorts(pod)).filter((each) => each.endsWith(`:${TARGET}`)).length === 2;
    };
    await waitFor(`${argv[0]} to listen`, listens);
    return () => output;
  }

  /** Behind the server's pod is one where nobody listens, so that some connections are tried twice. */
  async function serve(server: Server, version: ProxyProtocol): Promise<void> {
    const name = `${server}-${version}`;
    const clusterIPs = CLUSTER_IPS[`${server} ${version}`];
    const nodePort = NODE_PORTS[`${server} ${version}`];
    const ports = [
      { name: 'http', port: 80, target: TARGET, nodePort },
      { name: 'udp', port: 80, target: UDP['udp-name'], protocol: 'UDP' },
    ] as const;
    const [service] = serviceObjects({
      ...{ name, ports, clusterIP: clusterIPs[0], annotations: { [ANNOTATION]: version } },
      spec: { clusterIPs, type: 'NodePort' },
    });
    const index = SERVERS.indexOf(server);
    const backing = (addresses: readonly string[]) =>
      [addresses[index], addresses[2]].map((each) => ({ address: each! }));
    environment.manifests.write(`${name}.yaml`, [
      service!,
      sliceObject(name, ports, backing(POD_ADDRESSES)),
      sliceObject(name, ports, backing(IPV6.pods), 'IPv6'),
    ]);
    await environment.waitForRules(clusterIPs[0], ports.length);
    const isOfIpv6 = (rule: string) =>
      /-A KUBE-PORTALS-CONTAINER /.test(rule) && rule.includes(` -d ${clusterIPs[1]}/128 `);
    await waitFor(
      'rules of IPv6',
      async () => (await environment.iptables.save('nat', 6)).filter(isOfIpv6).length === ports.length,
    );
  }

  /** From a source port of its own, which it returns. */
  async function get(from: Namespace, host: string, port: number) {
    const localPort = ++lastPort;
    const url = `http://${host.includes(':') ? `[${host}]` : host}:${port}/`;
    const options = ['--noproxy', '*', '--silent', '--show-error', '--max-time', '60', '--local-port', `${localPort}`];
    const { code, stderr } = await from.run(['curl', '--fail', ...options, url]);
    return { localPort, code, stderr };
  }

  for (const server of SERVERS) {
    for (const version of ['v1', 'v2'] as const) {
      test(`${server} logs the client and what it asked for, by ${version} in both families`, async () => {
        await serve(server, version);
        const [v4, v6] = CLUSTER_IPS[`${server} ${version}`];
        const nodePort = NODE_PORTS[`${server} ${version}`];
        const { client, outside, node } = environment.topology;
        const ways = [
          [client, CLIENT_ADDRESS, v4, 80],
          [client, IPV6.client, v6, 80],
          [outside, OUTSIDE_ADDRESS, NODE_ADDRESS, nodePort],
          [outside, IPV6.outside, IPV6.node, nodePort],
          [node, NODE_ADDRESS, v4, 80],
          [node, IPV6.node, v6, 80],
        ] as const;
        for (const [from, address, host, port] of [...ways, ...ways]) {
          const { localPort, code, stderr } = await get(from, host, port);
          assert.equal(code, 0, `${host}:${port} from ${address}: ${stderr}\n${environment.proxy.tail()}`);
          const line = `${address} ${localPort} ${host} ${port}`;
          const isLogged = () => log[server]().split('\n').includes(line);
          await waitFor(`the line ${line}`, isLogged).catch((error: Error) => {
            throw new Error(`${error.message}; it has ${log[server]()}`);
          });
        }
      });
    }

    test(`${server} refuses who comes to the pod itself, without a header`, async () => {
      const { code } = await get(environment.topology.client, POD_ADDRESSES[SERVERS.indexOf(server)]!, TARGET);
      assert.notEqual(code, 0);
    });
  }

  test('dials were tried again, and the UDP ports were warned of once for each Service', async () => {
    assert.ok(metric(await environment.metricsText(), 'userspace_proxy_connect_retries_total', 'port="http"') > 0);
    const warnings = environment.proxy.log.filter(({ err }) => /no effect on UDP ports/.test(String(err)));
    assert.deepEqual(
      warnings.map(({ level, field }) => [level, field]),
      Array.from({ length: 4 }, () => ['warn', `metadata.annotations[${ANNOTATION}]`]),
    );
  });
});
