/**
 * For both sides of a connection. No delay and keepalive after 15 s are what Go's `net` package sets by default, and so
 * what upstream has; Node sets neither. Without `allowHalfOpen` Node would answer the end of one direction with the end
 * of the other.
 */
export const TCP_OPTIONS = {
  allowHalfOpen: true,
  noDelay: true,
  keepAlive: true,
  keepAliveInitialDelay: 15_000,
} as const;
