import { endpointName } from '../model/endpoint.ts';
import { SCHEDULERS } from '../model/scheduler.ts';
import { MAX_WAIT_MS, MIN_WAIT_MS } from '../model/waiting.ts';
import { ACCEPTED_FLAGS, FIELDS_WITHOUT_FLAG } from './accepted.ts';
import {
  BOOLEAN,
  type Flag,
  joined,
  type Kind,
  many,
  number,
  OPTIONAL_TEXT,
  one,
  oneOf,
  pointer,
  type Setting,
  TEXT,
  text,
  time,
  whole,
} from './setting.ts';
import {
  apiServer,
  cidr,
  congestionControl,
  DEFAULT_CONTROL_SOCKET,
  duration,
  durationWithin,
  integer,
  interfaceName,
  kernelTimeout,
  type ListenAddress,
  MAX_INT32,
  nodeName,
  nodePortAddresses,
  parseBindAddress,
  parseCriEndpoint,
  parseListenAddress,
  parseLogFile,
  parsePortRange,
  parseSocket,
  parseStateDirectory,
  path,
  ports,
  positiveDuration,
  positiveNumber,
  proxyMode,
  scheduler,
  showCidr,
  showPortRange,
  zeroOr,
} from './values.ts';

/** The kernel's IFNAMSIZ, without the final NUL. */
const MAX_INTERFACE_NAME = 15;

/** What the kernel allows at most as a process's descriptors by default (fs.nr_open). */
const MAX_DESCRIPTORS = 1_048_576;
/** Close to what a JavaScript Map holds (2²⁴). */
const MAX_CLIENTS = 10_000_000;

const DURATION = time(duration);
const POSITIVE_DURATION = time(positiveDuration);
/** After 250 ms the first try is given up anyway. */
const HEDGE = time(durationWithin(0, 249));
/** The end is that of doubling (src/services/ejections.ts). */
const EJECT_TIME = time(durationWithin(100, 60_000));
const WAIT = time(zeroOr(durationWithin(MIN_WAIT_MS, MAX_WAIT_MS)));
const KERNEL_TIMEOUT = time(kernelTimeout);
const CIDR = text(cidr, showCidr);
const PORT_RANGE = text(ports, showPortRange);
const ADDRESS_BLOCK = text(nodePortAddresses, showCidr);
const WORKERS = text((given) => (given === '' ? undefined : integer(1, 64)(given)));
const DETECT_LOCAL_MODE = oneOf('', 'ClusterCIDR', 'NodeCIDR', 'BridgeInterface', 'InterfaceNamePrefix');

function listenAddress(defaultPort: number): Kind<ListenAddress | undefined> {
  return text(
    (given) => parseListenAddress(given, defaultPort),
    (address) => (address ? endpointName(address) : ''),
  );
}

/** Sets the heading below which `--help` shows these flags. */
function grouped<Flags extends object>(group: string, flags: Flags) {
  const entries = Object.entries(flags).map(([name, flag]) => [name, { group, ...flag }]);
  return Object.fromEntries(entries) as { readonly [N in keyof Flags]: Flags[N] & { readonly group: string } };
}

/** Every setting with an effect. Names and defaults are kube-proxy's wherever it has the flag. */
export const FLAGS = {
  ...grouped('Services come from:', {
    kubeconfig: one(OPTIONAL_TEXT, '', {
      fallbackText: 'the service account of the Pod',
      describe: 'how to reach the API server whose Services are served',
      field: 'clientConnection.kubeconfig',
    }),
    master: one(OPTIONAL_TEXT, '', {
      fallbackText: 'what the kubeconfig says',
      describe: 'URL of the API server, whatever the kubeconfig or the environment of the Pod says',
    }),
    'api-servers': many(text(apiServer, String), {
      fallbackText: 'none',
      describe:
        'URLs of API servers of the cluster, the preferred one first; what the kubeconfig or --master names comes ' +
        'after them, and its credentials and certificate authority hold for all; repeat it or separate with commas',
    }),
    'api-servers-from-cluster': one(BOOLEAN, 'false', {
      describe: 'use also the API servers that the endpoints of default/kubernetes name, after all others',
    }),
    manifests: many(text(path), {
      describe:
        'files or directories with Service, Endpoints and EndpointSlice objects, YAML or JSON, instead of an API ' +
        'server; repeat it or separate with commas; changes take effect while running',
    }),
    'service-cluster-ip-range': many(CIDR, {
      fallbackText: 'none',
      describe:
        'CIDRs, one for each address family, which nothing else on the network uses: Services of --manifests without a ' +
        'clusterIP get one from there, nearly always the same at each start; repeat it or separate with commas',
    }),
    'allow-loopback-endpoints': one(BOOLEAN, 'false', {
      describe: 'endpoints of --manifests may be programs of this machine at 127.0.0.0/8 and ::1',
    }),
    'hostname-override': one(text(nodeName), '', {
      fallbackText: 'the host name',
      describe: 'name of the Node object of this machine',
      field: 'hostnameOverride',
    }),
    'kube-api-qps': one(number(positiveNumber), '5', {
      describe: 'requests per second to the API server in the long term; watches and events do not count',
      field: 'clientConnection.qps',
    }),
    'kube-api-burst': one(whole(1, 1_000_000), '10', {
      describe: 'requests that may follow each other at once',
      field: 'clientConnection.burst',
    }),
  }),
  ...grouped('State on disk:', {
    'state-dir': one(text(parseStateDirectory), '', {
      fallbackText: 'nothing is kept on disk',
      describe:
        'directory for what the API server has said last, which a start without it serves, and for the last good state ' +
        'of each file of --manifests',
    }),
    'state-wait': one(DURATION, '10s', {
      describe: 'how long a start waits for the API server before it serves what --state-dir has',
    }),
    // A state that is days old names endpoints that answer, or it does not; the proxy finds out which.
    'state-max-age': one(DURATION, '0s', {
      describe: 'what --state-dir has is not used when it is older; 0 sets no limit',
    }),
    'cri-endpoint': one(
      text(parseCriEndpoint, (socket) => socket ?? ''),
      '',
      {
        fallbackText: 'it is not asked',
        describe:
          'socket of the container runtime, such as unix:///run/containerd/containerd.sock; after a boot it is asked for ' +
          "the addresses that this node's own pods have now, until the API server says something new of them",
      },
    ),
  }),
  ...grouped('Listening:', {
    'proxy-mode': one(text(proxyMode), 'userspace', {
      describe: 'userspace, the only mode there is here',
      field: 'mode',
    }),
    'bind-address': one(text(parseBindAddress), '0.0.0.0', {
      describe:
        'address for the local port of each Service port; 0.0.0.0 and :: are all addresses of both families, and the ' +
        'family comes first; one other than these serves its family only',
      field: 'bindAddress',
    }),
    'proxy-port-range': one(text(parsePortRange, showPortRange), '', {
      fallbackText: 'any free port',
      describe: 'local ports to choose from: a-b, a+n or n',
      field: 'portRange',
    }),
    'nodeport-addresses': many(ADDRESS_BLOCK, {
      fallbackText: 'every address of the node',
      describe:
        'CIDRs of node addresses that serve NodePorts, primary for those that the Node object names, localhost for ' +
        'loopback, all for all; without one of an address family, all of its addresses do; repeat it or separate with ' +
        'commas',
      field: 'nodePortAddresses',
    }),
    'node-endpoint-ports': many(PORT_RANGE, {
      fallbackText: 'none; all with --manifests',
      describe:
        "ports at which an endpoint at this node's own addresses needs no Pod behind it, and may be the kubelet: " +
        "there, clients of its Service get past the node's firewall; a-b, a+n or n; repeat it or separate with commas",
    }),
    'external-ip-allow-list': many(CIDR, {
      fallbackText: 'any address',
      describe:
        'CIDRs that externalIPs of Services may be in; else any author of a Service may take over the ' +
        'traffic to any address; repeat it or separate with commas',
    }),
  }),
  ...grouped('Connections and flows:', {
    dataplane: one(oneOf('auto', 'fast', 'node'), 'auto', {
      describe:
        'engine that carries the traffic: fast runs worker threads on libc, node is portable; auto prefers fast',
    }),
    workers: one(WORKERS, '', {
      fallbackText: 'the cores',
      describe: 'threads of the fast engine, which share the connections of a busy Service port',
    }),
    'tcp-half-open-timeout': one(POSITIVE_DURATION, '5m', {
      describe: 'ends a TCP connection that is closed in one direction and silent in the other for so long',
    }),
    'tcp-user-timeout': one(DURATION, '30s', {
      describe:
        'resets a TCP connection whose endpoint has for so long not acknowledged anything that was sent to it; a ' +
        'reader that pauses acknowledges; 0 leaves it to the kernel, which takes a quarter of an hour',
    }),
    'tcp-congestion-control': one(text(congestionControl), '', {
      fallbackText: "the node's",
      describe:
        'congestion control of the TCP connections to clients and to endpoints, such as cubic where the node uses bbr, ' +
        'which is slower between pods of one node; one that the kernel lacks is an error',
    }),
    // Zero by default. An endpoint also leaves when a Service selects other pods or, where only Endpoints are watched,
    // when its pod begins to stop. Such pods still finish their work, as in every mode of kube-proxy. Keep-alive ends
    // connections to pods that are dead.
    'endpoint-drain-timeout': one(DURATION, '0s', {
      describe: 'ends the TCP connections to an endpoint that has been gone for so long; 0 leaves that to the two ends',
    }),
    'udp-timeout': one(POSITIVE_DURATION, '250ms', {
      describe: 'ends a UDP flow that has been silent for so long',
      field: 'udpIdleTimeout',
    }),
    'udp-first-reply-timeout': one(POSITIVE_DURATION, '5s', {
      describe: 'the same for a flow that waits for its first reply (a slow DNS answer); never below --udp-timeout',
    }),
    'udp-max-flows-per-service': one(whole(1, MAX_DESCRIPTORS), '8192', {
      describe:
        'UDP flows of one Service port; datagrams of further clients are dropped, so that a flood of forged ' +
        'senders at one Service port leaves flows to the others of its namespace',
    }),
    'udp-max-flows': one(whole(1, MAX_DESCRIPTORS), '16384', {
      describe:
        'UDP flows in all, of which one namespace alone gets four fifths; each takes one descriptor, so keep it below ' +
        'the limit on open files (ulimit -n)',
    }),
    'eject-after': one(whole(0, 1000), '3', {
      describe:
        'connects in a row that an endpoint may fail (refused, silent or unreachable) before it is ejected: clients of ' +
        'that Service get it last until it answers one of them; 0 ejects none',
    }),
    'eject-time': one(EJECT_TIME, '5s', {
      describe:
        'how long an endpoint is ejected before it gets one client as a trial; each failed trial doubles it, up to 1m',
    }),
    // Off: endpoints that do not answer are ejected, and those that are only slow get no second connection by default.
    'dial-hedge': one(HEDGE, '0s', {
      describe:
        'silence of an endpoint after which a second one is tried, below 250ms; the first to answer is used; at most ' +
        'for 5% of the connections of a Service port, not with ClientIP affinity; 0 turns it off',
    }),
    'wait-for-endpoints': one(WAIT, '0s', {
      describe:
        'how long clients of a Service without a usable endpoint wait for one before they are refused, from 100ms to ' +
        '10m; 0 refuses them at once; the annotation kube-userspace-proxy/wait-for-endpoints of a Service counts first',
    }),
    // 65536 is an IPv4 /16 of pods, about 8 MB per Service port when full. Upstream has no limit.
    'affinity-max-clients': one(whole(1, MAX_CLIENTS), '65536', {
      describe:
        'clients remembered per Service port with ClientIP affinity, about 170 bytes each; beyond it, the one ' +
        'unseen for longest may be sent to another endpoint. All Service ports together: 262144, or this for each ' +
        'worker thread if that is more',
    }),
    // Free of what kube-proxy (14), kubelet (15), Calico and Tailscale (16 to 31), Cilium (8 to 11) and the AWS CNI (7)
    // use.
    'connection-mark-bit': one(whole(0, 30), '13', {
      describe:
        "bit of the packet mark on the proxy's own connections to endpoints, by which its rules spare them; move it " +
        'where other programs use that bit',
    }),
  }),
  ...grouped('Choosing endpoints:', {
    'ipvs-scheduler': one(text(scheduler), 'rr', {
      describe:
        `how endpoints are chosen: ${SCHEDULERS.join(', ')}; the annotation kube-userspace-proxy/scheduler of a ` +
        'Service counts first',
      field: 'ipvs.scheduler',
    }),
  }),
  ...grouped("Clients' addresses:", {
    'client-address': one(oneOf('preserve', 'node'), 'preserve', {
      describe:
        "what endpoints see: preserve shows them the client's address wherever kube-proxy does, node always this " +
        'node; the annotation kube-userspace-proxy/client-address of a Service counts first',
    }),
    'masquerade-all': one(BOOLEAN, 'false', {
      describe: 'endpoints see this node behind every cluster IP, whatever a Service says',
      field: 'iptables.masqueradeAll',
    }),
  }),
  ...grouped('Rules in the kernel:', {
    capture: one(oneOf('auto', 'iptables', 'nft'), 'auto', {
      describe:
        'what captures packets for Services: auto takes iptables where its programs and modules work, else nft; ' +
        'after a change, what the other has installed is removed',
    }),
    'iptables-mode': one(oneOf('auto', 'nft', 'legacy'), 'auto', {
      describe: 'which iptables to drive: auto takes the one that the node already uses',
    }),
    'cluster-cidr': many(CIDR, {
      fallbackText: 'not known',
      describe:
        'CIDRs that pods are in, separated by commas: the policy Local for external traffic is not for them, ' +
        'endpoints do not see the address of other clients of cluster IPs, and no external IP is taken there',
      field: 'clusterCIDR',
      ...joined(CIDR),
    }),
    'detect-local-mode': one(DETECT_LOCAL_MODE, '', {
      fallbackText: 'ClusterCIDR',
      describe:
        'what tells pods from clients outside: ClusterCIDR (--cluster-cidr), NodeCIDR (podCIDRs of the Node object), ' +
        'BridgeInterface or InterfaceNamePrefix (the interface that their packets come in by)',
      field: 'detectLocalMode',
    }),
    'pod-bridge-interface': one(text(interfaceName(MAX_INTERFACE_NAME)), '', {
      fallbackText: 'none',
      describe: 'the interface of pods, for --detect-local-mode BridgeInterface',
      field: 'detectLocal.bridgeInterface',
    }),
    // The rule appends "+".
    'pod-interface-name-prefix': one(text(interfaceName(MAX_INTERFACE_NAME - 1)), '', {
      fallbackText: 'none',
      describe: 'how the names of the interfaces of pods begin, for --detect-local-mode InterfaceNamePrefix',
      field: 'detectLocal.interfaceNamePrefix',
    }),
    'iptables-sync-period': one(POSITIVE_DURATION, '30s', {
      describe: 'rules that something else removed are back within this time',
      field: 'iptables.syncPeriod',
    }),
    'iptables-min-sync-period': one(DURATION, '100ms', {
      describe: 'shortest time between two syncs during many changes; the first is applied at once',
      field: 'iptables.minSyncPeriod',
    }),
    cleanup: one(BOOLEAN, 'false', {
      describe:
        'remove every rule and chain of this proxy and of kube-proxy, IPv4 and IPv6, and exit; no source of ' +
        'Services is needed',
    }),
  }),
  ...grouped('Health, metrics and log:', {
    'healthz-bind-address': one(listenAddress(10256), '0.0.0.0:10256', {
      describe: 'ip or ip:port that serves /healthz; 0.0.0.0 and :: are all addresses of both families; "" for none',
      field: 'healthzBindAddress',
    }),
    'healthz-port': one(whole(0, 65_535), '10256', {
      describe: 'port where --healthz-bind-address names none; 0 for no such server',
    }),
    'metrics-bind-address': one(listenAddress(10249), '127.0.0.1:10249', {
      describe: 'ip or ip:port that serves /metrics, /proxyMode, /healthz and the status page; "" for none',
      field: 'metricsBindAddress',
    }),
    'metrics-port': one(whole(0, 65_535), '10249', {
      describe: 'port where --metrics-bind-address names none; 0 for no such server',
    }),
    'bind-address-hard-fail': one(BOOLEAN, 'false', {
      describe: 'exit when one of these two addresses cannot be had, instead of trying again',
      field: 'bindAddressHardFail',
    }),
    profiling: one(BOOLEAN, 'false', {
      describe: 'serve profiles of this process beside /metrics',
      field: 'enableProfiling',
    }),
    'control-socket': one(text(parseSocket), DEFAULT_CONTROL_SOCKET, {
      describe: 'Unix socket, for root only, on which list, drain and other subcommands reach the proxy; "" for none',
    }),
    'hand-over-socket': one(text(parseSocket), '', {
      fallbackText: 'none',
      describe:
        'Unix socket, in a folder of root, by which a process that is started beside the one that serves this node, ' +
        'such as that of a new Pod, takes over all that it has; both need it',
    }),
    'connection-log': one(text(parseLogFile), '', {
      fallbackText: 'none',
      describe:
        'file to which a line of JSON is appended for each connection and flow that ends, and each client that is ' +
        'refused; opened again on SIGUSR2',
    }),
    v: one(whole(0, 10), '0', {
      describe: 'log verbosity, from 0 to 10',
      field: 'logging.verbosity',
    }),
    'log-format': one(oneOf('auto', 'text', 'json'), 'auto', {
      describe: 'auto: text on a terminal, one JSON object per line elsewhere',
    }),
    'logging-format': one(oneOf('text', 'json'), 'text', {
      describe: "kube-proxy's name for it: used only when --log-format is auto",
      field: 'logging.format',
    }),
  }),
  ...grouped('This machine:', {
    'oom-score-adj': one(pointer(whole(-1_000, 1_000)), '-999', {
      describe: 'how readily the kernel ends this process when memory is short, from -1000 (never) to 1000',
      field: 'oomScoreAdj',
    }),
    'tcp-tw-reuse': one(BOOLEAN, 'true', {
      describe:
        'set net.ipv4.tcp_tw_reuse to 1, without which one endpoint gets at most about 470 connections a second from ' +
        'clients that close first; false leaves it as it is',
    }),
    'conntrack-max-per-core': one(pointer(whole(0, MAX_INT32)), '32768', {
      describe:
        'raise nf_conntrack_max to so many connections per core, at most 1048576; 0 leaves it and ignores ' +
        '--conntrack-min',
      field: 'conntrack.maxPerCore',
    }),
    'conntrack-min': one(pointer(whole(0, MAX_INT32)), '131072', {
      describe: 'raise nf_conntrack_max to at least this, however few cores there are',
      field: 'conntrack.min',
    }),
    'conntrack-tcp-timeout-established': one(pointer(KERNEL_TIMEOUT), '24h', {
      describe: 'how long conntrack remembers a silent TCP connection; 0 leaves it as it is',
      field: 'conntrack.tcpEstablishedTimeout',
    }),
    'conntrack-tcp-timeout-close-wait': one(pointer(KERNEL_TIMEOUT), '1h', {
      describe: 'the same for one that is closed in one direction',
      field: 'conntrack.tcpCloseWaitTimeout',
    }),
    'conntrack-tcp-be-liberal': one(BOOLEAN, 'false', {
      describe: 'let conntrack accept TCP packets outside the window; false leaves it as it is',
      field: 'conntrack.tcpBeLiberal',
    }),
    'conntrack-udp-timeout': one(KERNEL_TIMEOUT, '0s', {
      describe: 'how long conntrack remembers a UDP flow without an answer; 0 leaves it as it is',
      field: 'conntrack.udpTimeout',
    }),
    'conntrack-udp-timeout-stream': one(KERNEL_TIMEOUT, '0s', {
      describe: 'the same for one that was answered more than once',
      field: 'conntrack.udpStreamTimeout',
    }),
    'init-only': one(BOOLEAN, 'false', {
      describe:
        'set what --tcp-tw-reuse and --conntrack-* say and exit, for an init container with more rights than the ' +
        'proxy needs',
    }),
  }),
  ...grouped('Configuration file:', {
    config: one(TEXT, '', {
      fallbackText: 'none',
      describe:
        'KubeProxyConfiguration (v1alpha1) in YAML or JSON; it decides everything that it has a field for, except ' +
        '--hostname-override and the log; a change on disk ends the program, or has it hand over to a successor',
    }),
    'write-config-to': one(TEXT, '', {
      fallbackText: 'no file',
      describe: 'write there what these flags and --config come to, as such a file, and exit',
    }),
  }),
} satisfies Record<string, Flag<unknown>>;

const WITH_FLAG = { ...FLAGS, ...ACCEPTED_FLAGS };

/**
 * The one table that flags, configuration file, `--write-config-to`, `/configz` and docs/flags.md come from: settings
 * with an effect, then those that are only accepted, then those that have a field but no flag.
 */
export const SETTINGS: Readonly<Record<string, Setting<unknown>>> = { ...WITH_FLAG, ...FIELDS_WITHOUT_FLAG };

type FlagName = keyof typeof WITH_FLAG;
export type SettingValues = { readonly [N in FlagName]: ReturnType<(typeof WITH_FLAG)[N]['parse']> };
