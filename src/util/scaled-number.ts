/** A number that is not negative, as `digits` × 1000 to the power of `power`. */
export interface ScaledNumber {
  /** Two or three that count: "0", "0.4", "17", "1.2", "350". More only above the greatest power. */
  readonly digits: string;
  readonly power: number;
}

/** Rounds to what people take in at a glance. */
export function scaledNumber(value: number, maxPower: number): ScaledNumber {
  let scaled = value;
  let power = 0;
  // What would be rounded to four digits is said in the next power.
  while (scaled >= 999.5 && power < maxPower) {
    scaled /= 1_000;
    power++;
  }
  const hasFraction = scaled < 9.95 && (power > 0 || scaled !== Math.round(scaled));
  return { digits: hasFraction ? scaled.toFixed(1) : String(Math.round(scaled)), power };
}
