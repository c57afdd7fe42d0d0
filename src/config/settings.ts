import { ACCEPTED_FLAGS, FIELDS_WITHOUT_FLAG } from './accepted.ts';
import { FLAGS } from './flags.ts';
import type { Setting } from './setting.ts';

/**
 * The one table that flags, configuration file, `--write-config-to`, `/configz` and docs/flags.md come from: settings
 * with an effect, then those that are only accepted, then those that have a field but no flag.
 */
const TABLE = { ...FLAGS, ...ACCEPTED_FLAGS, ...FIELDS_WITHOUT_FLAG };

export type SettingName = keyof typeof TABLE;
export type SettingValues = { readonly [N in SettingName]: ReturnType<(typeof TABLE)[N]['parse']> };

export const SETTINGS: Readonly<Record<SettingName, Setting<unknown>>> = TABLE;
export const SETTING_NAMES = Object.keys(TABLE) as readonly SettingName[];
