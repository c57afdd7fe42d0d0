import { ACCEPTED_FLAGS, FIELDS_WITHOUT_FLAG } from './accepted.ts';
import { FLAGS } from './flags.ts';
import type { Setting } from './setting.ts';

const WITH_FLAG = { ...FLAGS, ...ACCEPTED_FLAGS };

/**
 * The one table that flags, configuration file, `--write-config-to`, `/configz` and docs/flags.md come from: settings
 * with an effect, then those that are only accepted, then those that have a field but no flag.
 */
export const SETTINGS: Readonly<Record<string, Setting<unknown>>> = { ...WITH_FLAG, ...FIELDS_WITHOUT_FLAG };

export type FlagName = keyof typeof WITH_FLAG;
export type SettingValues = { readonly [N in FlagName]: ReturnType<(typeof WITH_FLAG)[N]['parse']> };
