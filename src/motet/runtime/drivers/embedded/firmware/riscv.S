/* Where a RISC-V core starts, and how it enters a kernel and leaves it. */
#if __riscv_xlen == 64
#define LOAD ld
#define STORE sd
#define WORD 8
#else
#define LOAD lw
#define STORE sw
#define WORD 4
#endif

    .section .vectors, "ax"
    .globl _start
_start:
    csrr  t0, mhartid
    bnez  t0, idle
    la    sp, motet_stack_end
    li    t0, 0x6600            /* floating point, and vectors where there are any */
    csrs  mstatus, t0
    la    t0, idle
    csrw  mtvec, t0
    call  start_in_c
    .align 6
idle:
    wfi
    j     idle

/* int enter(uintptr_t entry, const struct call *call) */
    .text
    .globl enter, leave
enter:
    addi  sp, sp, -((14 * WORD + 12 * 8 + 8 + 15) & -16)
    STORE ra, 0 * WORD(sp)
    STORE s0, 1 * WORD(sp)
    STORE s1, 2 * WORD(sp)
    STORE s2, 3 * WORD(sp)
    STORE s3, 4 * WORD(sp)
    STORE s4, 5 * WORD(sp)
    STORE s5, 6 * WORD(sp)
    STORE s6, 7 * WORD(sp)
    STORE s7, 8 * WORD(sp)
    STORE s8, 9 * WORD(sp)
    STORE s9, 10 * WORD(sp)
    STORE s10, 11 * WORD(sp)
    STORE s11, 12 * WORD(sp)
    fsd   fs0, 14 * WORD + 0(sp)
    fsd   fs1, 14 * WORD + 8(sp)
    fsd   fs2, 14 * WORD + 16(sp)
    fsd   fs3, 14 * WORD + 24(sp)
    fsd   fs4, 14 * WORD + 32(sp)
    fsd   fs5, 14 * WORD + 40(sp)
    fsd   fs6, 14 * WORD + 48(sp)
    fsd   fs7, 14 * WORD + 56(sp)
    fsd   fs8, 14 * WORD + 64(sp)
    fsd   fs9, 14 * WORD + 72(sp)
    fsd   fs10, 14 * WORD + 80(sp)
    fsd   fs11, 14 * WORD + 88(sp)
    la    t0, motet_context
    STORE sp, 0(t0)
    csrw  fcsr, zero            /* round to nearest, no exceptions raised */
    mv    t0, a0
    mv    t1, a1
    LOAD  a0, 0 * WORD(t1)
    LOAD  a1, 1 * WORD(t1)
#if __riscv_xlen == 64
    li    a2, 0
    LOAD  a3, 2 * WORD(t1)
    LOAD  a4, 3 * WORD(t1)
#else
    li    a2, 0
    li    a3, 0
    LOAD  a4, 2 * WORD(t1)
    li    a5, 0
    LOAD  a6, 3 * WORD(t1)
#endif
    jalr  t0
    li    a0, 2                 /* STATUS_OK */
1:
    LOAD  ra, 0 * WORD(sp)
    LOAD  s0, 1 * WORD(sp)
    LOAD  s1, 2 * WORD(sp)
    LOAD  s2, 3 * WORD(sp)
    LOAD  s3, 4 * WORD(sp)
    LOAD  s4, 5 * WORD(sp)
    LOAD  s5, 6 * WORD(sp)
    LOAD  s6, 7 * WORD(sp)
    LOAD  s7, 8 * WORD(sp)
    LOAD  s8, 9 * WORD(sp)
    LOAD  s9, 10 * WORD(sp)
    LOAD  s10, 11 * WORD(sp)
    LOAD  s11, 12 * WORD(sp)
    fld   fs0, 14 * WORD + 0(sp)
    fld   fs1, 14 * WORD + 8(sp)
    fld   fs2, 14 * WORD + 16(sp)
    fld   fs3, 14 * WORD + 24(sp)
    fld   fs4, 14 * WORD + 32(sp)
    fld   fs5, 14 * WORD + 40(sp)
    fld   fs6, 14 * WORD + 48(sp)
    fld   fs7, 14 * WORD + 56(sp)
    fld   fs8, 14 * WORD + 64(sp)
    fld   fs9, 14 * WORD + 72(sp)
    fld   fs10, 14 * WORD + 80(sp)
    fld   fs11, 14 * WORD + 88(sp)
    addi  sp, sp, (14 * WORD + 12 * 8 + 8 + 15) & -16
    ret
leave:
    la    t0, motet_context
    LOAD  sp, 0(t0)
    la    t0, motet_verdict
    LOAD  a0, 0(t0)
    j     1b
