/* Where every core starts, how it enters a kernel in user mode, and how it comes back. */
#include "protocol.h"

#define FRAME 144           /* registers that a call may change, saved over a trap from user mode */

    .section .text.start, "ax"
    .globl _start
_start:
    csrr  a0, mhartid
    la    sp, firmware_stacks
    addi  t0, a0, 1
    li    t1, FIRMWARE_STACK
    mul   t0, t0, t1
    add   sp, sp, t0
    la    t0, trap
    csrw  mtvec, t0
    csrw  mscratch, zero
    csrw  mie, zero
    li    t0, 0x6600        /* floating point and vectors on (the latter where there are any) */
    csrs  mstatus, t0
    call  hart_main
1:  wfi
    j     1b

/* unsigned long enter(context a0, entry a1, stack a2, const unsigned long arguments[5] a3)
   Calls entry(arguments…) in user mode. 0: it returned; otherwise what user_trap said. */
    .globl enter
enter:
    sd    ra, 0(a0)
    sd    sp, 8(a0)
    sd    gp, 16(a0)
    sd    tp, 24(a0)
    sd    s0, 32(a0)
    sd    s1, 40(a0)
    sd    s2, 48(a0)
    sd    s3, 56(a0)
    sd    s4, 64(a0)
    sd    s5, 72(a0)
    sd    s6, 80(a0)
    sd    s7, 88(a0)
    sd    s8, 96(a0)
    sd    s9, 104(a0)
    sd    s10, 112(a0)
    sd    s11, 120(a0)
    addi  sp, sp, -16
    sd    a0, 0(sp)         /* the trap finds the context on top of the stack */
    csrw  mscratch, sp
    csrw  mepc, a1
    li    t0, 0x1800        /* MPP: return to user mode … */
    csrc  mstatus, t0
    li    t0, 0x80          /* MPIE: … with interrupts */
    csrs  mstatus, t0
    csrw  fcsr, zero        /* round to nearest, no exceptions raised */
    li    ra, TRAMPOLINE
    mv    sp, a2
    mv    t1, a3
    mv    t2, a0
    ld    a0, 0(t1)
    ld    a1, 8(t1)
    ld    a2, 16(t1)
    ld    a3, 24(t1)
    ld    a4, 32(t1)
    csrr  t0, minstret      /* from here to the kernel: as many instructions as calibrate() finds */
    sd    t0, 128(t2)
    mret

/* mscratch holds the firmware's stack pointer while a kernel runs, else 0. */
    .align 2
trap:
    csrrw sp, mscratch, sp
    beqz  sp, trap_of_firmware
    addi  sp, sp, -FRAME
    sd    t0, 8(sp)
    csrr  t0, minstret
    sd    t1, 16(sp)
    sd    t2, 24(sp)
    ld    t1, FRAME(sp)     /* the context: the counter when the kernel went on, and what it had retired by then */
    ld    t2, 128(t1)
    sub   t0, t0, t2
    ld    t2, 136(t1)
    add   t0, t0, t2
    sd    t0, 136(t1)
    sd    ra, 0(sp)
    sd    t3, 32(sp)
    sd    t4, 40(sp)
    sd    t5, 48(sp)
    sd    t6, 56(sp)
    sd    a0, 64(sp)
    sd    a1, 72(sp)
    sd    a2, 80(sp)
    sd    a3, 88(sp)
    sd    a4, 96(sp)
    sd    a5, 104(sp)
    sd    a6, 112(sp)
    sd    a7, 120(sp)
    sd    gp, 128(sp)
    sd    tp, 136(sp)
    csrr  a0, mcause
    csrr  a1, mepc
    csrr  a2, mtval
    call  user_trap
    bnez  a0, leave
    ld    ra, 0(sp)
    ld    t2, 24(sp)
    ld    t3, 32(sp)
    ld    t4, 40(sp)
    ld    t5, 48(sp)
    ld    t6, 56(sp)
    ld    a0, 64(sp)
    ld    a1, 72(sp)
    ld    a2, 80(sp)
    ld    a3, 88(sp)
    ld    a4, 96(sp)
    ld    a5, 104(sp)
    ld    a6, 112(sp)
    ld    a7, 120(sp)
    ld    gp, 128(sp)
    ld    tp, 136(sp)
    ld    t1, FRAME(sp)
    csrr  t0, minstret      /* RESUMING instructions more than at the first entry */
    sd    t0, 128(t1)
    ld    t0, 8(sp)
    ld    t1, 16(sp)
    addi  sp, sp, FRAME
    csrrw sp, mscratch, sp
    mret
leave:                      /* drop the kernel and return from enter */
    ld    t0, FRAME(sp)
    csrw  mscratch, zero
    addi  a0, a0, -1
    ld    ra, 0(t0)
    ld    sp, 8(t0)
    ld    gp, 16(t0)
    ld    tp, 24(t0)
    ld    s0, 32(t0)
    ld    s1, 40(t0)
    ld    s2, 48(t0)
    ld    s3, 56(t0)
    ld    s4, 64(t0)
    ld    s5, 72(t0)
    ld    s6, 80(t0)
    ld    s7, 88(t0)
    ld    s8, 96(t0)
    ld    s9, 104(t0)
    ld    s10, 112(t0)
    ld    s11, 120(t0)
    ret
trap_of_firmware:
    csrrw sp, mscratch, sp
    csrr  a0, mcause
    csrr  a1, mepc
    csrr  a2, mtval
    call  panic
1:  wfi
    j     1b

    .section .stacks, "aw", @nobits
    .align 12
firmware_stacks:
    .space FIRMWARE_STACK * MOST_HARTS
