import type { Machine } from './elf.ts';

/**
 * What runs between the dynamic linker and Node's own first instruction, as JavaScript would be too late for the one
 * thing and has no means for the other:
 *
 *     if ((mallopt = dlsym(RTLD_DEFAULT, "mallopt"))) { mallopt(M_ARENA_MAX, 2); mallopt(M_MMAP_THRESHOLD, 65536); }
 *     fd = memfd_create(name, MFD_CLOEXEC | MFD_NOEXEC_SEAL);
 *     if (fd == -EINVAL) fd = memfd_create(name, MFD_CLOEXEC);     // before Linux 6.3
 *     if (fd >= 0) while (size > 0 && (n = write(fd, addon, size)) > 0) { addon += n; size -= n; }
 *     goto *node;
 *
 * Sealed or not, a library can be mapped from it. The two registers that matter to Node's first instruction, the stack
 * pointer and what is to run at exit (rdx, x0), are what they were.
 *
 * All that differs from build to build is in a table of words behind the code.
 */
export interface EntryTable {
  /** Where the pointer to `dlsym` lies. */
  readonly dlsym: number;
  /** Node's own first instruction. */
  readonly node: number;
  readonly addon: number;
  readonly addonBytes: number;
  /** What the file in memory is called. */
  readonly name: string;
}

/** Takes the same space whatever the table says, and may lie anywhere. */
export function entryCode(machine: Machine, { dlsym, node, addon, addonBytes, name }: EntryTable): Buffer {
  const words = Buffer.alloc(32);
  for (const [index, word] of [dlsym, node, addon, addonBytes].entries())
    words.writeBigUInt64LE(BigInt(word), index * 8);
  return Buffer.concat([CODE[machine], words, Buffer.from(`mallopt\0${name}\0`, 'latin1')]);
}

function assembled(listing: string): Buffer {
  const bytes = listing.replace(/;.*$/gm, '').replace(/\s+/g, '');
  return Buffer.from(bytes, 'hex');
}

// Assembled by GNU as. The table follows at 0xa0 in both: dlsym, node, addon, addonBytes, "mallopt", name.

const X64 = assembled(`
  52                      ; push rdx
  48 83 ec 08             ; sub rsp, 8
  31 ff                   ; xor edi, edi                RTLD_DEFAULT
  48 8d 35 b2 00 00 00    ; lea rsi, [table + 32]       "mallopt"
  48 8b 05 8b 00 00 00    ; mov rax, [table]
  ff 10                   ; call [rax]                  dlsym
  48 85 c0                ; test rax, rax
  74 1b                   ; jz addon
  48 89 c3                ; mov rbx, rax
  bf f8 ff ff ff          ; mov edi, -8                 M_ARENA_MAX
  be 02 00 00 00          ; mov esi, 2
  ff d3                   ; call rbx
  bf fd ff ff ff          ; mov edi, -3                 M_MMAP_THRESHOLD
  be 00 00 01 00          ; mov esi, 65536
  ff d3                   ; call rbx
                          ; addon:
  48 8d 3d 8a 00 00 00    ; lea rdi, [table + 40]       name
  be 09 00 00 00          ; mov esi, 9                  MFD_CLOEXEC | MFD_NOEXEC_SEAL
  b8 3f 01 00 00          ; mov eax, 319                memfd_create
  0f 05                   ; syscall
  83 f8 ea                ; cmp eax, -22                -EINVAL
  75 0c                   ; jne made
  be 01 00 00 00          ; mov esi, 1                  MFD_CLOEXEC
  b8 3f 01 00 00          ; mov eax, 319
  0f 05                   ; syscall
                          ; made:
  85 c0                   ; test eax, eax
  78 24                   ; js node
  89 c7                   ; mov edi, eax
  48 8b 35 48 00 00 00    ; mov rsi, [table + 16]       addon
  48 8b 15 49 00 00 00    ; mov rdx, [table + 24]       addonBytes
                          ; copy:
  b8 01 00 00 00          ; mov eax, 1                  write
  0f 05                   ; syscall
  48 85 c0                ; test rax, rax
  7e 08                   ; jle node
  48 01 c6                ; add rsi, rax
  48 29 c2                ; sub rdx, rax
  75 ec                   ; jnz copy
                          ; node:
  48 83 c4 08             ; add rsp, 8
  5a                      ; pop rdx
  48 8b 05 19 00 00 00    ; mov rax, [table + 8]        node
  ff e0                   ; jmp rax
  90 90 90 90 90 90 90 90 90 90 90 90 90 90 90
`);

/** Instructions are written as the words that they are, most significant byte first. */
const ARM64 = assembled(`
  a9bf07e0                ; stp x0, x1, [sp, #-16]!
  100004f3                ; adr x19, table
  d2800000                ; mov x0, #0                  RTLD_DEFAULT
  91008261                ; add x1, x19, #32            "mallopt"
  f9400262                ; ldr x2, [x19]
  f9400042                ; ldr x2, [x2]                dlsym
  d63f0040                ; blr x2
  b4000100                ; cbz x0, addon
  aa0003f4                ; mov x20, x0
  128000e0                ; mov w0, #-8                 M_ARENA_MAX
  52800041                ; mov w1, #2
  d63f0280                ; blr x20
  12800040                ; mov w0, #-3                 M_MMAP_THRESHOLD
  52a00021                ; mov w1, #65536
  d63f0280                ; blr x20
                          ; addon:
  9100a260                ; add x0, x19, #40            name
  d2800121                ; mov x1, #9                  MFD_CLOEXEC | MFD_NOEXEC_SEAL
  d28022e8                ; mov x8, #279                memfd_create
  d4000001                ; svc #0
  b100581f                ; cmn x0, #22                 -EINVAL
  54000081                ; b.ne made
  9100a260                ; add x0, x19, #40
  d2800021                ; mov x1, #1                  MFD_CLOEXEC
  d4000001                ; svc #0
                          ; made:
  b7f80160                ; tbnz x0, #63, node
  aa0003f4                ; mov x20, x0
  a9410a61                ; ldp x1, x2, [x19, #16]      addon, addonBytes
  d2800808                ; mov x8, #64                 write
                          ; copy:
  aa1403e0                ; mov x0, x20
  d4000001                ; svc #0
  f100001f                ; cmp x0, #0
  5400008d                ; b.le node
  8b000021                ; add x1, x1, x0
  eb000042                ; subs x2, x2, x0
  54ffff41                ; b.ne copy
                          ; node:
  a8c107e0                ; ldp x0, x1, [sp], #16
  f9400670                ; ldr x16, [x19, #8]          node
  d61f0200                ; br x16
  d503201f d503201f
`).swap32();

const CODE: Readonly<Record<Machine, Buffer>> = { x64: X64, arm64: ARM64 };
