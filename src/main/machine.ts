import { arrivalFrom } from '../host/arrival.ts';
import { hostAddress, localAddresses } from '../host/host-address.ts';
import { familyOf } from '../model/address.ts';
import type { Machine } from '../view/explain.ts';

/** This machine, as it is now. */
export const machine: Machine = {
  // The kernel takes all of 127.0.0.0/8 for its own, of which an interface names one address.
  isLocal: (address) => address.startsWith('127.') || localAddresses(familyOf(address)).includes(address),
  ownAddress: (family) => hostAddress(family)?.address,
  arrivalFrom,
};
