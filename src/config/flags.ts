import { endpointName } from '../model/endpoint.ts';
import { type ListenAddress, parseBindAddress, parseListenAddress } from './addresses.ts';
import { cidr, nodePortAddresses, showCidr } from './cidr.ts';
import { DEFAULT_CONTROL_SOCKET, parseControlSocket } from './control-socket.ts';
import {
  BOOLEAN,
  DURATION,
  joined,
  NUMBER,
  POINTER_DURATION,
  POINTER_NUMBER,
  TEXT,
  text,
  texts,
} from './field-types.ts';
import { parsePortRange, showPortRange } from './port-range.ts';
import { at, choice, type Flag, list, single } from './setting.ts';
import {
  anyText,
  boolean,
  duration,
  integer,
  interfaceName,
  kernelTimeout,
  MAX_INT32,
  nodeName,
  oneOf,
  optional,
  path,
  positiveDuration,
  positiveNumber,
  proxyMode,
} from './values.ts';

const SOURCE = 'Services come from:';
const LISTENING = 'Listening:';
const CONNECTIONS = 'Connections and flows:';
const RULES = 'iptables rules:';
const OBSERVING = 'Health, metrics and log:';
const MACHINE = 'This machine:';
const CONFIGURATION = 'Configuration file:';

const DETECT_LOCAL_MODES = ['', 'ClusterCIDR', 'NodeCIDR', 'BridgeInterface', 'InterfaceNamePrefix'] as const;

/** The kernel's IFNAMSIZ, without the final NUL. */
const MAX_INTERFACE_NAME = 15;

/** What the kernel allows at most as a process's descriptors by default (fs.nr_open). */
const MAX_DESCRIPTORS = 1_048_576;
/** Close to what a JavaScript Map holds (2²⁴). */
const MAX_CLIENTS = 10_000_000;

const LISTEN = text((address: ListenAddress | undefined) => (address === undefined ? '' : endpointName(address)));

/** Every setting with an effect. Names and defaults are kube-proxy's wherever it has the flag. */
export const FLAGS = {
  kubeconfig: single('', optional, {
    group: SOURCE,
    fallbackText: 'the service account of the Pod',
    describe: 'how to reach the API server whose Services are served',
    field: at('clientConnection.kubeconfig', TEXT),
  }),
  master: single('', optional, {
    group: SOURCE,
    fallbackText: 'what the kubeconfig says',
    describe: 'URL of the API server, whatever the kubeconfig or the environment of the Pod says',
  }),
  manifests: list(path, {
    group: SOURCE,
    describe:
      'files or directories with Service, Endpoints and EndpointSlice objects, YAML or JSON, instead of an API server; ' +
      'repeat it or separate with commas; changes take effect while running',
  }),
  'hostname-override': single('', nodeName, {
    group: SOURCE,
    fallbackText: 'the host name',
    describe: 'name of the Node object of this machine',
    field: { ...at('hostnameOverride', TEXT), flagWins: true },
  }),
  'kube-api-qps': single('5', positiveNumber, {
    group: SOURCE,
    describe: 'requests per second to the API server in the long term; watches and events do not count',
    field: at('clientConnection.qps', NUMBER),
  }),
  'kube-api-burst': single('10', integer(1, 1_000_000), {
    group: SOURCE,
    describe: 'requests that may follow each other at once',
    field: at('clientConnection.burst', NUMBER),
  }),

  'proxy-mode': single('userspace', proxyMode, {
    group: LISTENING,
    describe: 'userspace, the only mode there is here',
    field: at('mode', TEXT),
  }),
  'bind-address': single('0.0.0.0', parseBindAddress, {
    group: LISTENING,
    describe:
      'address for the local port of each Service port; 0.0.0.0 and :: are all addresses of both families, and the ' +
      'family comes first; one other than these serves its family only',
    field: at('bindAddress', TEXT),
  }),
  'proxy-port-range': single('', parsePortRange, {
    group: LISTENING,
    fallbackText: 'any free port',
    describe: 'local ports to choose from: a-b, a+n or n',
    field: at('portRange', text(showPortRange)),
  }),
  'nodeport-addresses': list(nodePortAddresses, {
    group: LISTENING,
    fallbackText: 'every address of the node',
    describe:
      'CIDRs of node addresses that serve NodePorts, or primary for those that the Node object names; without one of ' +
      'an address family, all of its addresses do; repeat it or separate with commas',
    field: at('nodePortAddresses', texts(showCidr)),
  }),
  'external-ip-allow-list': list(cidr, {
    group: LISTENING,
    fallbackText: 'any address',
    describe:
      'CIDRs that externalIPs of Services may be in; whoever may create a Service may otherwise take over the ' +
      'traffic to any address; repeat it or separate with commas',
  }),

  dataplane: choice('auto', ['auto', 'fast', 'node'], {
    group: CONNECTIONS,
    describe: 'engine that carries the traffic: fast runs worker threads on libc, node is portable; auto prefers fast',
  }),
  workers: single('', (text) => (text === '' ? undefined : integer(1, 64)(text)), {
    group: CONNECTIONS,
    fallbackText: 'half the cores',
    describe: 'threads of the fast engine; each Service port belongs to one of them',
  }),
  'tcp-half-open-timeout': single('5m', positiveDuration, {
    group: CONNECTIONS,
    describe: 'ends a TCP connection that is closed in one direction and silent in the other for so long',
  }),
  'tcp-user-timeout': single('30s', duration, {
    group: CONNECTIONS,
    describe:
      'resets a TCP connection whose endpoint has for so long not acknowledged anything that was sent to it; a reader ' +
      'that pauses acknowledges; 0 leaves it to the kernel, which takes a quarter of an hour',
  }),
  // Not above zero by default: an endpoint also goes when a Service is pointed at other pods, or, where only Endpoints
  // are watched, as soon as its pod begins to stop. Both still finish what they are doing, as they do in every mode of
  // kube-proxy; and keep-alive ends the connections to those that are really dead.
  'endpoint-drain-timeout': single('0s', duration, {
    group: CONNECTIONS,
    describe: 'ends the TCP connections to an endpoint that has been gone for so long; 0 leaves that to the two ends',
  }),
  'udp-timeout': single('250ms', positiveDuration, {
    group: CONNECTIONS,
    describe: 'ends a UDP flow that has been silent for so long',
    field: at('udpIdleTimeout', DURATION),
  }),
  'udp-first-reply-timeout': single('5s', positiveDuration, {
    group: CONNECTIONS,
    describe: 'the same for a flow that waits for its first reply (a slow DNS answer); never below --udp-timeout',
  }),
  'udp-max-flows-per-service': single('4096', integer(1, MAX_DESCRIPTORS), {
    group: CONNECTIONS,
    describe:
      'UDP flows of one Service port; datagrams of further clients are dropped, so that a flood of forged ' +
      'senders at one Service cannot use up the flows of the others',
  }),
  'udp-max-flows': single('16384', integer(1, MAX_DESCRIPTORS), {
    group: CONNECTIONS,
    describe: 'UDP flows in all; each takes one descriptor, so keep it below the limit on open files (ulimit -n)',
  }),
  // 65536 is a whole IPv4 /16 of pods, for about 8 MB per Service port when full; upstream remembers without bound.
  'affinity-max-clients': single('65536', integer(1, MAX_CLIENTS), {
    group: CONNECTIONS,
    describe:
      'clients remembered per Service port with ClientIP affinity, about 120 bytes each; beyond it, the one ' +
      'unseen for longest may be sent to another endpoint',
  }),
  // Free of what kube-proxy (14), kubelet (15), Calico and Tailscale (16 to 31), Cilium (8 to 11) and the AWS CNI (7) use.
  'connection-mark-bit': single('13', integer(0, 30), {
    group: CONNECTIONS,
    describe:
      "bit of the packet mark on the proxy's own connections to endpoints, by which its rules spare them; move it " +
      'where other programs use that bit',
  }),

  'iptables-mode': choice('auto', ['auto', 'nft', 'legacy'], {
    group: RULES,
    describe: 'which iptables to drive: auto takes the one that the node already uses',
  }),
  'cluster-cidr': list(cidr, {
    group: RULES,
    fallbackText: 'not known',
    describe:
      'CIDRs that pods are in: their connections to external addresses and NodePorts of a Service with ' +
      'externalTrafficPolicy Local may leave the node, and no external IP is taken there; repeat it or separate with commas',
    field: at('clusterCIDR', joined(showCidr)),
  }),
  'detect-local-mode': single('', oneOf(...DETECT_LOCAL_MODES), {
    group: RULES,
    fallbackText: 'ClusterCIDR',
    choices: DETECT_LOCAL_MODES,
    describe:
      'what tells pods from clients outside: ClusterCIDR (--cluster-cidr), NodeCIDR (podCIDRs of the Node object), ' +
      'BridgeInterface or InterfaceNamePrefix (the interface that their packets come in by)',
    field: at('detectLocalMode', TEXT),
  }),
  'pod-bridge-interface': single('', interfaceName(MAX_INTERFACE_NAME), {
    group: RULES,
    fallbackText: 'none',
    describe: 'the interface of pods, for --detect-local-mode BridgeInterface',
    field: at('detectLocal.bridgeInterface', TEXT),
  }),
  // The "+" of the rule takes one character more.
  'pod-interface-name-prefix': single('', interfaceName(MAX_INTERFACE_NAME - 1), {
    group: RULES,
    fallbackText: 'none',
    describe: 'how the names of the interfaces of pods begin, for --detect-local-mode InterfaceNamePrefix',
    field: at('detectLocal.interfaceNamePrefix', TEXT),
  }),
  'iptables-sync-period': single('30s', positiveDuration, {
    group: RULES,
    describe: 'rules that something else removed are back within this time',
    field: at('iptables.syncPeriod', DURATION),
  }),
  'iptables-min-sync-period': single('100ms', duration, {
    group: RULES,
    describe: 'shortest time between two syncs when changes come thick and fast; the first is applied at once',
    field: at('iptables.minSyncPeriod', DURATION),
  }),
  cleanup: single('false', boolean, {
    group: RULES,
    isSwitch: true,
    describe:
      'remove every rule and chain of this proxy and of kube-proxy, IPv4 and IPv6, and exit; no source of Services is needed',
  }),

  'healthz-bind-address': single('0.0.0.0:10256', (text) => parseListenAddress(text, 10256), {
    group: OBSERVING,
    describe: 'ip or ip:port that serves /healthz; 0.0.0.0 and :: are all addresses of both families; "" for none',
    field: at('healthzBindAddress', LISTEN),
  }),
  'healthz-port': single('10256', integer(0, 65_535), {
    group: OBSERVING,
    describe: 'port where --healthz-bind-address names none; 0 for no such server',
  }),
  'metrics-bind-address': single('127.0.0.1:10249', (text) => parseListenAddress(text, 10249), {
    group: OBSERVING,
    describe: 'ip or ip:port that serves /metrics, /proxyMode, /healthz and the status page; "" for none',
    field: at('metricsBindAddress', LISTEN),
  }),
  'metrics-port': single('10249', integer(0, 65_535), {
    group: OBSERVING,
    describe: 'port where --metrics-bind-address names none; 0 for no such server',
  }),
  'bind-address-hard-fail': single('false', boolean, {
    group: OBSERVING,
    isSwitch: true,
    describe: 'exit when one of these two addresses cannot be had, instead of trying again',
    field: at('bindAddressHardFail', BOOLEAN),
  }),
  profiling: single('false', boolean, {
    group: OBSERVING,
    isSwitch: true,
    describe: 'serve profiles of this process beside /metrics',
    field: at('enableProfiling', BOOLEAN),
  }),
  'control-socket': single(DEFAULT_CONTROL_SOCKET, parseControlSocket, {
    group: OBSERVING,
    describe: 'Unix socket, for root only, on which list, drain and other subcommands reach the proxy; "" for none',
  }),
  v: single('0', integer(0, 10), {
    group: OBSERVING,
    describe: 'how much the log says, from 0 to 10',
    field: { ...at('logging.verbosity', NUMBER), flagWins: true },
  }),
  'log-format': choice('auto', ['auto', 'text', 'json'], {
    group: OBSERVING,
    describe: 'auto: text on a terminal, one JSON object per line elsewhere',
  }),
  'logging-format': choice('text', ['text', 'json'], {
    group: OBSERVING,
    describe: "kube-proxy's name for it: json counts where --log-format is auto, text is no more than the default",
    field: { ...at('logging.format', TEXT), flagWins: true },
  }),

  'oom-score-adj': single('-999', integer(-1_000, 1_000), {
    group: MACHINE,
    describe: 'how readily the kernel ends this process when memory is short, from -1000 (never) to 1000',
    field: at('oomScoreAdj', POINTER_NUMBER),
  }),
  'tcp-tw-reuse': single('true', boolean, {
    group: MACHINE,
    isSwitch: true,
    describe:
      'set net.ipv4.tcp_tw_reuse to 1, without which one endpoint gets at most about 470 connections a second from ' +
      'clients that close first; false leaves it as it is',
  }),
  'conntrack-max-per-core': single('32768', integer(0, MAX_INT32), {
    group: MACHINE,
    describe:
      'raise nf_conntrack_max to so many connections per core, at most 1048576; 0 leaves it and ignores --conntrack-min',
    field: at('conntrack.maxPerCore', POINTER_NUMBER),
  }),
  'conntrack-min': single('131072', integer(0, MAX_INT32), {
    group: MACHINE,
    describe: 'raise nf_conntrack_max to at least this, however few cores there are',
    field: at('conntrack.min', POINTER_NUMBER),
  }),
  'conntrack-tcp-timeout-established': single('24h', kernelTimeout, {
    group: MACHINE,
    describe: 'how long conntrack remembers a silent TCP connection; 0 leaves it as it is',
    field: at('conntrack.tcpEstablishedTimeout', POINTER_DURATION),
  }),
  'conntrack-tcp-timeout-close-wait': single('1h', kernelTimeout, {
    group: MACHINE,
    describe: 'the same for one that is closed in one direction',
    field: at('conntrack.tcpCloseWaitTimeout', POINTER_DURATION),
  }),
  'conntrack-tcp-be-liberal': single('false', boolean, {
    group: MACHINE,
    isSwitch: true,
    describe: 'let conntrack accept TCP packets outside the window; false leaves it as it is',
    field: at('conntrack.tcpBeLiberal', BOOLEAN),
  }),
  'conntrack-udp-timeout': single('0s', kernelTimeout, {
    group: MACHINE,
    describe: 'how long conntrack remembers a UDP flow without an answer; 0 leaves it as it is',
    field: at('conntrack.udpTimeout', DURATION),
  }),
  'conntrack-udp-timeout-stream': single('0s', kernelTimeout, {
    group: MACHINE,
    describe: 'the same for one that was answered more than once',
    field: at('conntrack.udpStreamTimeout', DURATION),
  }),
  'init-only': single('false', boolean, {
    group: MACHINE,
    isSwitch: true,
    describe:
      'set what --tcp-tw-reuse and --conntrack-* say and exit, for an init container with more rights than the proxy needs',
  }),

  config: single('', anyText, {
    group: CONFIGURATION,
    fallbackText: 'none',
    describe:
      'KubeProxyConfiguration (v1alpha1) in YAML or JSON; it decides everything that it has a field for, except ' +
      '--hostname-override and the log; a change on disk ends the program, or has it hand over to a successor',
  }),
  'write-config-to': single('', anyText, {
    group: CONFIGURATION,
    fallbackText: 'no file',
    describe: 'write there what these flags and --config come to, as such a file, and exit',
  }),
} satisfies Record<string, Flag<unknown>>;
