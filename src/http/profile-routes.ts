import { type Handler, type HttpResponse, JSON_TYPE, TEXT } from './http.ts';
import { type ProfileKind, type Profiler, ProfilerBusyError } from './profiler.ts';

const MAX_SECONDS = 60;
/** Of Go's `/debug/pprof/profile`. */
const DEFAULT_SECONDS = 30;

const CPU_PATH = '/debug/v8/cpu-profile';
const HEAP_PATH = '/debug/v8/heap-profile';

const POINTER =
  'This proxy is no Go program, so there are no pprof profiles.\n' +
  `V8's are at ${CPU_PATH}?seconds=${DEFAULT_SECONDS} and ${HEAP_PATH}?seconds=${DEFAULT_SECONDS}: save them as\n` +
  'NAME.cpuprofile and NAME.heapprofile, and open them in the DevTools of Chrome or in speedscope.\n';

/** Where kube-proxy's users look first; go's pprof tool prints the body of the 404. */
const GO_PATHS = ['/debug/pprof', '/debug/pprof/', '/debug/pprof/profile', '/debug/pprof/heap', '/debug/pprof/trace'];

/** In the place of Go's `/debug/pprof`, under paths of our own: the formats are not Go's. */
export function profileRoutes(profiler: Profiler): readonly (readonly [string, Handler])[] {
  const serve =
    (kind: ProfileKind): Handler =>
    async ({ query, signal }) => {
      const seconds = secondsOf(query);
      if (seconds === undefined) {
        return text(400, `seconds must be a whole number from 1 to ${MAX_SECONDS}.\n`);
      }
      try {
        const body = await profiler.profile(kind, seconds * 1_000, signal);
        const headers = { 'Content-Disposition': `attachment; filename="kube-userspace-proxy.${kind}profile"` };
        return { status: 200, contentType: JSON_TYPE, headers, body };
      } catch (error) {
        if (!(error instanceof ProfilerBusyError)) throw error;
        return text(429, `Another profile is being taken; ask again within ${MAX_SECONDS} seconds.\n`);
      }
    };
  const pointer: Handler = () => text(404, POINTER);
  return [[CPU_PATH, serve('cpu')], [HEAP_PATH, serve('heap')], ...GO_PATHS.map((path) => [path, pointer] as const)];
}

function secondsOf(query: URLSearchParams): number | undefined {
  const given = query.get('seconds');
  if (given === null) return DEFAULT_SECONDS;
  const seconds = /^\d{1,2}$/.test(given) ? Number(given) : 0;
  return seconds >= 1 && seconds <= MAX_SECONDS ? seconds : undefined;
}

function text(status: number, body: string): HttpResponse {
  return { status, contentType: TEXT, body };
}
