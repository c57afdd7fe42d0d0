/** "02:59", as ipvsadm shows when a connection expires. */
export function minutesAndSeconds(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1_000));
  return `${twoDigits(Math.floor(seconds / 60))}:${twoDigits(seconds % 60)}`;
}

/** The two greatest units that it has: "0s", "59s", "5m12s", "3h4m", "12d3h". */
export function shortDuration(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1_000));
  const parts = [
    [Math.floor(seconds / 86_400), 'd'],
    [Math.floor(seconds / 3_600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'm'],
    [seconds % 60, 's'],
  ] as const;
  const first = parts.findIndex(([value]) => value > 0);
  if (first < 0) return '0s';
  return parts
    .slice(first, first + 2)
    .filter(([value]) => value > 0)
    .map(([value, unit]) => `${value}${unit}`)
    .join('');
}

/** "13:04:59" on the clock of the wall, where this program runs. */
export function timeOfDay(ms: number): string {
  return new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' }).format(ms);
}

function twoDigits(value: number): string {
  return String(value).padStart(2, '0');
}
