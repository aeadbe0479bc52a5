/* Firmware of the emulated many-core accelerator: bare metal, all in machine mode; kernels run in user mode under
   physical memory protection. Core 0 takes batches from the ring and works too; the others help with each wave.
   Whoever has nothing to do looks for work for a moment and then sleeps. */
#include "protocol.h"

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long u64;

#define mailbox ((volatile struct mailbox *)MAILBOX)
#define ring ((volatile struct batch *)RING)
#define SOFTWARE_INTERRUPT(hart) (*(volatile u32 *)(0x02000000UL + 4 * (hart)))
#define TIMER(hart) (*(volatile u64 *)(0x02004000UL + 8 * (hart)))
#define UART ((volatile u8 *)0x10000000UL)
#define PLIC(offset) (*(volatile u32 *)(0x0c000000UL + (offset)))
#define UART_INTERRUPT 10
#define NEVER (~0UL)

#define csr_read(name) ({ u64 value_; __asm__ volatile("csrr %0, " #name : "=r"(value_)); value_; })
#define csr_write(name, value) __asm__ volatile("csrw " #name ", %0" ::"r"((u64)(value)))
#define csr_set(name, value) __asm__ volatile("csrs " #name ", %0" ::"r"((u64)(value)))
#define csr_clear(name, value) __asm__ volatile("csrc " #name ", %0" ::"r"((u64)(value)))
#define fence() __asm__ volatile("fence rw, rw" ::: "memory")
#define fence_io() __asm__ volatile("fence iorw, iorw" ::: "memory")

/* What start.S keeps of a core while a kernel runs; the last of it is what the kernel has retired. */
enum { CONTEXT = 18, RETIRED = 17 };
/* Instructions that start.S runs between reading the counter and the kernel, beyond those of a first entry. */
enum { RESUMING = 4 };

enum { SOFTWARE = 1 << 3, TIMED = 1 << 7, EXTERNAL = 1 << 11 };          /* bits of mie */
#define INTERRUPT(number) (1UL << 63 | (number))

extern u64 enter(u64 *context, u64 entry, u64 stack, const u64 arguments[5]);

static struct hart {
    u64 context[CONTEXT];
    u64 protection;      /* the set that is in force */
    u64 armed;           /* when the timer will interrupt */
    u64 code;            /* the generation of code that its instruction fetch has seen */
    u64 command;         /* what it works on */
    volatile u32 asleep;
} __attribute__((aligned(64))) harts[MOST_HARTS];

/* The wave being run. `ticket` is generation << 8 | cores that take part: who reads itself into it knows that the
   rest stands still until it has left. */
static volatile u64 ticket __attribute__((aligned(64)));
static volatile u32 remaining __attribute__((aligned(64)));  /* cores still in it */
static volatile u32 failed __attribute__((aligned(64)));     /* the batch is lost: leave kernels, claim nothing */
static volatile u32 waiting;                                 /* core 0 sleeps until `remaining` is 0 */
static volatile struct batch *batch;
static u64 number, first, last, deadline, code_generation;
static u64 entering;         /* what the counter says of a kernel without instructions */
static volatile u32 present;

static u64 self(void) { return csr_read(mhartid); }

void panic(u64 cause, u64 pc, u64 value) {
    mailbox->panic_hart = self();
    mailbox->panic_cause = cause;
    mailbox->panic_pc = pc;
    mailbox->panic_value = value;
    fence();
    mailbox->panic = 1;
    fence_io();
    UART[0] = BELL_PANIC;
}

/* -- protection ------------------------------------------------------------------------------------------- */

static void set_address(u32 index, u64 value) {
    switch (index) {
#define CASE(n) case n: csr_write(pmpaddr##n, value); break;
    CASE(0) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7)
    CASE(8) CASE(9) CASE(10) CASE(11) CASE(12) CASE(13) CASE(14) CASE(15)
    }
}

static void protect(u64 hart, u64 address) {
    if (harts[hart].protection == address && address == mailbox->base)
        return;                       /* guards are made anew for every submission */
    volatile struct protection *p = (volatile struct protection *)address;
    volatile u64 *config = (volatile u64 *)p->config;
    for (u32 i = 0; i < PROTECTIONS; i++)
        set_address(i, p->address[i] >> 2);
    if (p->private >= 0) {
        u64 own = batch->private + hart * batch->private_stride;
        set_address(p->private, own >> 2);
        set_address(p->private + 1, (own + batch->private_stride) >> 2);
    }
    csr_write(pmpcfg0, config[0]);
    csr_write(pmpcfg2, config[1]);
    harts[hart].protection = address;
}

/* -- failure ---------------------------------------------------------------------------------------------- */

static void fail(u32 status, u64 cause, u64 pc, u64 value) {
    if (!__sync_bool_compare_and_swap(&failed, 0, 1))
        return;
    u64 hart = self();
    batch->hart = hart;
    batch->command = harts[hart].command;
    batch->cause = cause;
    batch->pc = pc;
    batch->value = value;
    batch->status = status;
    fence_io();
    for (u32 other = 0; other < mailbox->harts; other++)
        if (other != hart)
            SOFTWARE_INTERRUPT(other) = 1;     /* out of their kernels */
}

static int aborted(void) { return number < mailbox->abort_before; }

static void drain_bell(void) {
    u32 interrupt = PLIC(0x200004);
    while (UART[5] & 1)
        (void)UART[0];
    if (interrupt)
        PLIC(0x200004) = interrupt;
}

static void arm(u64 hart, u64 when) {
    harts[hart].armed = when;
    TIMER(hart) = when;
}

static u64 resume(u64 hart) {
    harts[hart].context[RETIRED] -= entering - 1 + RESUMING;    /* no ecall has ended this part of the kernel */
    return 0;
}

/* Called on a trap from a kernel. 0: go on with it; 1: it has returned; 2: drop it. */
u64 user_trap(u64 cause, u64 pc, u64 value) {
    u64 hart = self();
    if (cause == 8 && pc == TRAMPOLINE)
        return 1;
    if (cause == INTERRUPT(3)) {
        SOFTWARE_INTERRUPT(hart) = 0;
        fence_io();
        return failed ? 2 : resume(hart);
    }
    if (cause == INTERRUPT(7)) {
        if (csr_read(time) < deadline) {
            arm(hart, deadline);               /* it was set for an earlier wave */
            return resume(hart);
        }
        arm(hart, NEVER);
        fail(STATUS_TIMEOUT, cause, pc, value);
        return 2;
    }
    if (cause == INTERRUPT(11)) {
        drain_bell();
        if (!aborted())
            return failed ? 2 : resume(hart);
        fail(STATUS_ABORTED, cause, pc, value);
        return 2;
    }
    fail(STATUS_FAULT, cause, pc, value);
    return 2;
}

/* -- work ------------------------------------------------------------------------------------------------- */

static void copy(u8 *to, const u8 *from, u64 bytes) {
    if (((u64)to | (u64)from) % 8 == 0) {
        u64 *a = (u64 *)to;
        const u64 *b = (const u64 *)from;
        for (; bytes >= 64; bytes -= 64, a += 8, b += 8) {
            u64 v0 = b[0], v1 = b[1], v2 = b[2], v3 = b[3], v4 = b[4], v5 = b[5], v6 = b[6], v7 = b[7];
            a[0] = v0, a[1] = v1, a[2] = v2, a[3] = v3, a[4] = v4, a[5] = v5, a[6] = v6, a[7] = v7;
        }
        to = (u8 *)a;
        from = (const u8 *)b;
    }
    for (u64 i = 0; i < bytes; i++) {
        to[i] = from[i];
        __asm__ volatile("");                  /* no call of memcpy, which is not there */
    }
}

static void move(u64 hart, volatile struct command *command, u64 begin, u64 end) {
    protect(hart, mailbox->base);              /* an access across a guard's edge fails in machine mode too */
    const u64 *buffers = (const u64 *)command->buffers;
    u64 from = begin * COPY_CHUNK, to = end * COPY_CHUNK;
    if (to > command->bytes)
        to = command->bytes;
    copy((u8 *)buffers[1] + from, (const u8 *)buffers[0] + from, to - from);
    if (command->op == OP_LOAD) {
        fence();
        __sync_fetch_and_add(&code_generation, 1);
    }
}

static void launch(u64 hart, volatile struct command *command, u64 begin, u64 end) {
    u64 top = batch->private + hart * batch->private_stride + STACK;
    u64 arguments[5] = {command->buffers, command->sizes, begin, end, top};
    protect(hart, command->protection);
    if (mailbox->vector_bytes) {
        csr_write(0x008, 0);                   /* vstart: a kernel may have stopped within an instruction … */
        csr_write(0x00f, 0);                   /* … and vcsr: have asked for another rounding */
    }
    harts[hart].context[RETIRED] = 0;
    u64 dropped = enter(harts[hart].context, command->entry, top, arguments);
    if (!dropped && mailbox->count)
        __sync_fetch_and_add(&command->instructions, harts[hart].context[RETIRED] - entering);
}

static void work(u64 hart) {
    volatile struct command *commands = (volatile struct command *)batch->commands;
    if (harts[hart].code != code_generation) {
        harts[hart].code = code_generation;
        __asm__ volatile("fence.i");
    }
    if (harts[hart].armed > deadline)
        arm(hart, deadline);
    for (u64 i = first; i < last; i++) {
        volatile struct command *command = &commands[i];
        u64 tasks = command->tasks, grain = command->grain;
        volatile struct piece *piece = command->pieces ? (volatile struct piece *)command->pieces + hart : 0;
        harts[hart].command = i;
        while (!failed) {
            u64 begin = __sync_fetch_and_add(&command->next, grain);
            if (begin >= tasks)
                break;
            u64 end = begin + grain < tasks ? begin + grain : tasks;
            if (piece && !piece->begin)
                piece->begin = csr_read(time);
            if (command->op == OP_LAUNCH)
                launch(hart, command, begin, end);
            else
                move(hart, command, begin, end);
            if (piece)
                piece->end = csr_read(time);
        }
    }
}

/* Until when to look for work before sleeping. */
static u64 patience(void) { return mailbox->spin == FOREVER ? NEVER : csr_read(time) + mailbox->spin; }

/* Sleep until an interrupt that matters; a timer that is set for a kernel does not. */
static void sleep(u64 hart) {
    csr_clear(mie, TIMED);
    __asm__ volatile("wfi");
    csr_set(mie, TIMED);
    SOFTWARE_INTERRUPT(hart) = 0;
    fence_io();
}

static void help(u64 hart) {
    u64 seen = 0;
    for (;;) {
        u64 until = patience(), now;
        while ((now = ticket) == seen) {
            if (csr_read(time) < until)
                continue;
            harts[hart].asleep = 1;
            fence();
            if (ticket == seen)
                sleep(hart);
            harts[hart].asleep = 0;
            fence();
        }
        seen = now;
        fence();
        if (hart >= (now & 0xff))
            continue;
        work(hart);
        fence();
        if (__sync_sub_and_fetch(&remaining, 1) == 0) {
            fence();
            if (waiting)
                SOFTWARE_INTERRUPT(0) = 1;
        }
    }
}

static void await_helpers(void) {
    u64 until = patience();
    while (remaining) {
        if (aborted())
            fail(STATUS_ABORTED, 0, 0, 0);
        if (csr_read(time) < until)
            continue;
        waiting = 1;
        fence();
        if (remaining && (failed || !aborted())) {
            sleep(0);
            drain_bell();
        }
        waiting = 0;
        fence();
    }
    fence();
}

static void run_wave(volatile struct command *commands) {
    u64 shares = 0, cores = mailbox->harts;
    for (u64 i = first; i < last; i++) {
        commands[i].next = 0;
        if (commands[i].tasks)
            shares += (commands[i].tasks - 1) / commands[i].grain + 1;
    }
    if (cores > shares)
        cores = shares ? shares : 1;
    u64 now = csr_read(time);
    deadline = batch->limit ? now + batch->limit : NEVER;
    remaining = cores - 1;
    fence();
    if (cores > 1) {
        ticket = ((ticket >> 8) + 1) << 8 | cores;
        fence();
        for (u64 hart = 1; hart < cores; hart++)
            if (harts[hart].asleep)
                SOFTWARE_INTERRUPT(hart) = 1;
    }
    work(0);
    await_helpers();
    u64 end = csr_read(time);
    for (u64 i = first; i < last; i++) {
        commands[i].begin = now;
        commands[i].end = end;
    }
}

static void run_batch(void) {
    batch->begin = csr_read(time);
    batch->status = STATUS_RUNNING;
    failed = 0;
    fence();
    volatile struct command *commands = (volatile struct command *)batch->commands;
    u64 count = batch->count;
    for (first = 0; first < count && !failed; first = last) {
        if (aborted()) {
            fail(STATUS_ABORTED, 0, 0, 0);
            break;
        }
        for (last = first; last < count && !commands[last].last; last++)
            ;
        last += last < count;
        run_wave(commands);
    }
    if (!failed)
        batch->status = STATUS_OK;
    batch->end = csr_read(time);
    fence();
    mailbox->completed = number + 1;
    fence_io();
    UART[0] = BELL_DONE;
}

static void await_batch(void) {
    u64 until = patience();
    while (mailbox->head == number) {
        if (csr_read(time) < until)
            continue;
        mailbox->sleeping = 1;
        fence();
        if (mailbox->head == number) {
            sleep(0);
            drain_bell();
        }
        mailbox->sleeping = 0;
        fence();
    }
    fence();
}

/* A kernel that is nothing but the ecall to which kernels return. */
static void calibrate(void) {
    const u64 arguments[5] = {0};
    protect(0, mailbox->base);
    harts[0].context[RETIRED] = 0;
    enter(harts[0].context, TRAMPOLINE, 0, arguments);
    entering = harts[0].context[RETIRED];
}

static void manage(void) {
    UART[1] = 1;                               /* an interrupt for each byte received … */
    UART[2] = 7;
    PLIC(4 * UART_INTERRUPT) = 1;
    PLIC(0x2000) = 1 << UART_INTERRUPT;
    PLIC(0x200000) = 0;                        /* … to this core */
    while (present < mailbox->harts)
        ;
    mailbox->vector_bytes = csr_read(misa) >> ('V' - 'A') & 1 ? csr_read(0xc22) : 0;
    calibrate();
    mailbox->digest = DIGEST;
    fence_io();
    UART[0] = BELL_READY;
    for (;; number++) {
        await_batch();
        batch = &ring[number % SLOTS];
        run_batch();
    }
}

void hart_main(void) {
    u64 hart = self();
    if (hart >= MOST_HARTS)
        return;
    arm(hart, NEVER);
    SOFTWARE_INTERRUPT(hart) = 0;
    csr_write(mcounteren, 7);
    if (hart == 0) {
        *(volatile u32 *)TRAMPOLINE = 0x00000073;   /* ecall */
        __asm__ volatile("fence.i");
    }
    csr_set(mie, SOFTWARE | TIMED | (hart == 0 ? EXTERNAL : 0));
    __sync_fetch_and_add(&present, 1);
    if (hart == 0)
        manage();
    else
        help(hart);
}
