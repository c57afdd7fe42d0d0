import packageJson from '../../package.json' with { type: 'json' };

export const PROGRAM: string = packageJson.name;
/** Without the leading "v". */
export const VERSION: string = packageJson.version;
