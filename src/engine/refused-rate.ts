/**
 * Limits the entries of refused datagrams, of one Service port. Each datagram of a flood from forged addresses would be
 * one, and take the place of entries of other Services.
 */
export const REFUSED_RATE = { burst: 1024, ratePerSecond: 100 };
