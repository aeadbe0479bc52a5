/* Firmware of the emulated many-core accelerator: bare metal, all in machine mode; kernels run in user mode under
   physical memory protection. Core 0 takes batches from the ring; it and the others take parts of the commands that may
   run, the first such command first. Whoever ends the last part of a command counts down what those that need it wait
   for. Whoever has nothing to do looks for work for a moment and then sleeps. */
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
/* In two centuries. QEMU adds the nanoseconds until then to its clock: with -icount, a sum that overflowed would be a
   timer that fires again and again. */
#define NEVER (1UL << 56)
#define CLOSED (1UL << 63)

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
    u64 command;         /* what it works on … */
    u64 deadline;        /* … and until when */
    volatile u32 asleep;
} __attribute__((aligned(64))) harts[MOST_HARTS];

/* How many cores other than 0 are at work on the batch, and whether it is closed: nobody comes in then, and core 0
   waits for the last to leave. Outside nobody may look at a batch, at its commands or at what they point to. */
static volatile u64 gate __attribute__((aligned(64))) = CLOSED;
/* Counts up when there may be something to do: who saw nothing to do waits for it to change. */
static volatile u64 news __attribute__((aligned(64)));
static volatile u32 searching __attribute__((aligned(64)));  /* cores that look at `news` */
static volatile u64 unfinished __attribute__((aligned(64))); /* commands of the batch */
static volatile u32 failed __attribute__((aligned(64)));     /* the batch has failed: no other failure counts */
static volatile u32 stopped;                                 /* it is lost: leave kernels, take nothing */
static volatile struct batch *batch;
static u64 number, code_generation;
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

static volatile struct command *command_of(u64 index) {
    return (volatile struct command *)batch->commands + index;
}

static void interrupt_others(u64 hart) {
    fence_io();
    for (u32 other = 0; other < mailbox->harts; other++)
        if (other != hart)
            SOFTWARE_INTERRUPT(other) = 1;
}

/* A fault ends its command, and what needs that does not run; all else ends the batch. */
static void fail(u32 status, u64 cause, u64 pc, u64 value) {
    u64 hart = self();
    if (__sync_bool_compare_and_swap(&failed, 0, 1)) {
        batch->hart = hart;
        batch->command = harts[hart].command;
        batch->cause = cause;
        batch->pc = pc;
        batch->value = value;
        batch->status = status;
    }
    if (status == STATUS_FAULT) {
        command_of(harts[hart].command)->poisoned = 1;
    } else {
        stopped = 1;
        __sync_fetch_and_add(&news, 1);
    }
    interrupt_others(hart);        /* out of their kernels */
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

/* Whether what a core works on has failed elsewhere. */
static int dropped(u64 hart) { return stopped || command_of(harts[hart].command)->poisoned; }

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
        return dropped(hart) ? 2 : resume(hart);
    }
    if (cause == INTERRUPT(7)) {
        if (csr_read(time) < harts[hart].deadline) {
            arm(hart, harts[hart].deadline);   /* it was set for an earlier command */
            return resume(hart);
        }
        arm(hart, NEVER);
        fail(STATUS_TIMEOUT, cause, pc, value);
        return 2;
    }
    if (cause == INTERRUPT(11)) {
        drain_bell();
        if (!aborted())
            return dropped(hart) ? 2 : resume(hart);
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
    u64 lost = enter(harts[hart].context, command->entry, top, arguments);
    if (!lost && mailbox->count)
        __sync_fetch_and_add(&command->instructions, harts[hart].context[RETIRED] - entering);
}

/* -- the order of work ------------------------------------------------------------------------------------ */

static u64 words(void) { return (batch->count + 63UL) / 64; }

static u64 lowest(u64 bits) {
    u64 index = 0;
    for (u64 width = 32; width; width /= 2)
        if (!(bits & ((1UL << width) - 1))) {
            bits >>= width;
            index += width;
        }
    return index;
}

/* Take a part of the first command that may run. 0: there is none. */
static int take(u64 *index, u64 *part) {
    volatile u64 *ready = (volatile u64 *)batch->ready;
    for (u64 word = 0, count = words(); word < count; word++)
        for (u64 bits; (bits = ready[word]);) {
            u64 bit = lowest(bits), found = word * 64 + bit;
            volatile struct command *command = command_of(found);
            u64 parts = command->parts, taken = __sync_fetch_and_add(&command->next, 1);
            if (taken + 1 == parts)
                __sync_fetch_and_and(&ready[word], ~(1UL << bit));
            if (taken < parts) {
                *index = found;
                *part = taken;
                return 1;
            }
        }
    return 0;
}

static int is_anything_ready(void) {
    volatile u64 *ready = (volatile u64 *)batch->ready;
    for (u64 word = 0, count = words(); word < count; word++)
        if (ready[word])
            return 1;
    return 0;
}

/* Wake `hart` if it sleeps. */
static int wake(u64 hart) {
    if (!harts[hart].asleep || !__sync_bool_compare_and_swap(&harts[hart].asleep, 1, 0))
        return 0;
    SOFTWARE_INTERRUPT(hart) = 1;
    return 1;
}

/* There is something to do for `cores` others. */
static void announce(u64 cores) {
    __sync_fetch_and_add(&news, 1);
    fence();                                   /* who goes to sleep is seen below, or sees the news */
    u64 awake = searching;
    for (u64 hart = 0; hart < mailbox->harts && awake < cores; hart++)
        awake += wake(hart);
}

static void make_ready(u64 index) {
    __sync_fetch_and_or((volatile u64 *)batch->ready + index / 64, 1UL << index % 64);
}

/* A part has ended. Returns how many parts of other commands may run for it. */
static u64 finish(u64 index) {
    volatile struct command *command = command_of(index);
    fence();                                   /* what the part has written comes before the count … */
    if (__sync_sub_and_fetch(&command->left, 1))
        return 0;
    fence();                                   /* … and what other parts have, before what the readers do */
    command->end = csr_read(time);
    u64 released = 0, count = command->reader_count;
    volatile u32 *readers = (volatile u32 *)command->readers;
    u32 poisoned = command->poisoned;
    for (u64 i = 0; i < count; i++) {
        u64 other = readers[i];
        volatile struct command *reader = command_of(other);
        if (poisoned)
            reader->poisoned = 1;
        fence();
        if (__sync_sub_and_fetch(&reader->missing, 1) == 0) {
            fence();
            released += reader->parts;
            make_ready(other);
        }
    }
    if (__sync_sub_and_fetch(&unfinished, 1) == 0) {
        __sync_fetch_and_add(&news, 1);
        fence();
        wake(0);
    }
    return released;
}

static void run_part(u64 hart, u64 index, u64 part) {
    volatile struct command *command = command_of(index);
    u64 begin = part * command->grain, end = begin + command->grain, now = csr_read(time), limit = batch->limit;
    if (end > command->tasks)
        end = command->tasks;
    if (part == 0)
        command->begin = now;
    harts[hart].command = index;
    fence();                                   /* who fails elsewhere interrupts us, or is seen to have failed */
    if (begin >= end || command->poisoned)
        return;
    u64 since = command->begin;
    harts[hart].deadline = limit ? (since ? since : now) + limit : NEVER;
    if (harts[hart].armed > harts[hart].deadline)
        arm(hart, harts[hart].deadline);
    if (command->op == OP_LAUNCH)
        launch(hart, command, begin, end);
    else
        move(hart, command, begin, end);
    if (command->pieces) {
        volatile struct piece *piece = (volatile struct piece *)command->pieces + part;
        piece->hart = hart;
        piece->begin = now;
        piece->end = csr_read(time);
    }
}

/* Work until there is nothing to do. Returns the news that were out when there was something last. */
static u64 work(u64 hart) {
    if (harts[hart].code != code_generation) {
        harts[hart].code = code_generation;
        __asm__ volatile("fence.i");
    }
    for (u64 released = 0;;) {
        u64 seen = news, index, part;
        fence();
        if (stopped || (hart == 0 && aborted()) || !take(&index, &part))
            return seen;
        fence();                               /* what the commands before it have written */
        if (released && is_anything_ready())
            announce(released > 1 ? released - 1 : 1);
        run_part(hart, index, part);
        released = finish(index);
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

/* Until there are news other than `seen`, or, for core 0, until the batch is to end. */
static void await_news(u64 hart, u64 seen) {
    u64 until = patience();
    __sync_fetch_and_add(&searching, 1);
    while (news == seen && !(hart == 0 && aborted())) {
        if (csr_read(time) < until)
            continue;
        __sync_fetch_and_sub(&searching, 1);
        harts[hart].asleep = 1;
        fence();
        if (news == seen && !(hart == 0 && aborted())) {
            sleep(hart);
            if (hart == 0)
                drain_bell();
        }
        harts[hart].asleep = 0;
        fence();
        __sync_fetch_and_add(&searching, 1);
    }
    __sync_fetch_and_sub(&searching, 1);
    fence();
}

static int come_in(void) {
    for (u64 inside = gate; !(inside & CLOSED); inside = gate)
        if (__sync_bool_compare_and_swap(&gate, inside, inside + 1)) {
            fence();
            return 1;
        }
    return 0;
}

static void help(u64 hart) {
    for (;;) {
        u64 seen = news;
        fence();
        if (come_in()) {
            seen = work(hart);
            fence();
            __sync_fetch_and_sub(&gate, 1);
        }
        await_news(hart, seen);
    }
}

/* Returns how many parts may run at once. */
static u64 begin_commands(void) {
    u64 count = batch->count, parts = 0;
    volatile u64 *ready = (volatile u64 *)batch->ready;
    for (u64 word = 0; word < words(); word++)
        ready[word] = 0;
    for (u64 i = 0; i < count; i++) {
        volatile struct command *command = command_of(i);
        command->missing = command->needs;
        command->left = command->parts;
        command->next = command->poisoned = 0;
        command->begin = command->end = 0;
        if (!command->needs) {
            make_ready(i);
            parts += command->parts;
        }
    }
    unfinished = count;
    failed = stopped = 0;
    return parts;
}

static void run_batch(void) {
    batch->begin = csr_read(time);
    batch->status = STATUS_RUNNING;
    u64 parts = begin_commands();
    fence();
    __sync_fetch_and_and(&gate, ~CLOSED);
    if (parts > 1)
        announce(parts - 1);
    while (unfinished && !stopped) {
        if (aborted())
            fail(STATUS_ABORTED, 0, 0, 0);
        u64 seen = work(0);
        if (unfinished && !stopped && !aborted())
            await_news(0, seen);
    }
    __sync_fetch_and_or(&gate, CLOSED);
    while (gate != CLOSED)                     /* nobody stays: there is nothing to do */
        ;
    fence();
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
