/** Ports from `first` to `last`, both included; 1…65535. */
export interface PortRange {
  readonly first: number;
  readonly last: number;
}
