import { ControlServer, type ControlServerOptions } from '../operate/control/server.ts';

/** None for an empty path; to be started. */
export function openControl({
  path,
  ...rest
}: Omit<ControlServerOptions, 'path'> & { readonly path: string | undefined }): ControlServer[] {
  return path === undefined ? [] : [new ControlServer({ path, ...rest })];
}
