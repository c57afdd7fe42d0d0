import { bindAsync } from './libc.ts';

/** Gives free memory back to the kernel, all but so many bytes: malloc keeps what lies between pieces in use. */
export const trimMalloc = bindAsync('int malloc_trim(size_t)');
