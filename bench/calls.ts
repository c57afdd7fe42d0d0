import koffi from 'koffi';

type Call = (...args: readonly number[]) => number;

const libc = koffi.load('libc.so.6');

/** Functions of libc that only benchmarks call, as src/sys/calls.ts has those of the program. */
export const recvfrom = libc.func('int64_t recvfrom(int, int64_t, size_t, int, int64_t, int64_t)') as Call;
export const sendfile = libc.func('int64_t sendfile(int, int, int64_t, size_t)') as Call;
export const sendto = libc.func('int64_t sendto(int, int64_t, size_t, int, int64_t, unsigned int)') as Call;
