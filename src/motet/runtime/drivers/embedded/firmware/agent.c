/* The program on an embedded device: runs the batches that the host has written to memory, and serves a serial line.

   A debugger writes and reads memory itself, sets a breakpoint at motet_pause, and continues to run a batch. On a
   serial line, frames do the same. An image made by `motet export` has its batch in the mailbox from the start. */
#include "port.h"
#include <string.h>

volatile struct mailbox motet_mailbox __attribute__((section(".data"), aligned(64))) = {0};

const struct board motet_board __attribute__((section(".board"), used, aligned(64))) = {
    .digest = DIGEST, .pointer_bytes = sizeof(void *), .clock = CLOCK, .heap = HEAP,
};

static uint64_t started;
static volatile int running;

int agent_is_running(void) { return running; }

int agent_verdict(uint64_t now) {
    if (!running)
        return 0;
    if (motet_mailbox.abort || serial_byte() == ABORT_BYTE)
        return STATUS_ABORTED;
    return motet_mailbox.limit && now - started > motet_mailbox.limit ? STATUS_TIMEOUT : 0;
}

void agent_fault(uint64_t cause, uint64_t pc, uint64_t value, int status) {
    motet_mailbox.cause = cause;
    motet_mailbox.pc = pc;
    motet_mailbox.value = value;
    motet_mailbox.status = status;
    running = 0;
}

static int run_command(volatile struct command *command) {
    const uintptr_t *buffers = (const uintptr_t *)(uintptr_t)command->buffers;
    int status = STATUS_OK;
    started = port_ticks();
    uint64_t before = port_instructions();
    if (command->op == OP_LAUNCH) {
        const struct call call = {
            (uintptr_t)command->buffers, (uintptr_t)command->sizes, command->tasks, (uintptr_t)command->scratch,
        };
        running = 1;
        status = enter((uintptr_t)command->entry, &call);
        running = 0;
    } else if (command->op == OP_COPY) {
        memmove((void *)buffers[1], (const void *)buffers[0], command->bytes);
    } else {
        memset((void *)buffers[0], (int)command->tasks, command->bytes);
    }
    command->instructions = port_instructions() - before;
    command->ticks = port_ticks() - started;
    return status;
}

static void run_batch(void) {
    volatile struct command *commands = (volatile struct command *)(uintptr_t)motet_mailbox.commands;
    int status = STATUS_OK;
    motet_mailbox.abort = 0;
    motet_mailbox.status = STATUS_RUNNING;
    port_synchronise();
    for (uint32_t number = 0; number < motet_mailbox.count && status == STATUS_OK; number++) {
        motet_mailbox.command = number;
        status = run_command(commands + number);
    }
    motet_mailbox.status = status;
    motet_mailbox.completed++;
    motet_mailbox.request = 0;
}

/* A debugger's breakpoint is here while no batch runs. */
__attribute__((noinline)) void motet_pause(void) { __asm__ volatile("" ::: "memory"); }

/* -- the serial line ------------------------------------------------------------------------------------------ */

static uint32_t checksum;

static void add(uint8_t byte) {
    static const uint32_t nibbles[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    checksum ^= byte;
    checksum = checksum >> 4 ^ nibbles[checksum & 15];
    checksum = checksum >> 4 ^ nibbles[checksum & 15];
}

/* The next byte of a frame; -1 if the line is silent for half a second. */
static int frame_byte(void) {
    uint64_t end = port_ticks() + CLOCK / 2;
    for (;;) {
        int byte = serial_byte();
        if (byte >= 0) {
            add((uint8_t)byte);
            return byte;
        }
        if (port_ticks() > end)
            return -1;
    }
}

static uint64_t receive(int bytes, int *failed) {
    uint64_t value = 0;
    for (int at = 0; at < bytes && !*failed; at++) {
        int byte = frame_byte();
        *failed = byte < 0;
        value |= (uint64_t)(byte & 255) << 8 * at;
    }
    return value;
}

static void transmit(uint64_t value, int bytes) {
    for (int at = 0; at < bytes; at++) {
        add((uint8_t)(value >> 8 * at));
        serial_send((uint8_t)(value >> 8 * at));
    }
}

static void answer(int kind, const uint8_t *data, uint32_t size) {
    serial_send(FRAME_ANSWER);
    checksum = 0xffffffff;
    transmit(kind, 1);
    transmit(0, 8);
    transmit(size, 4);
    for (uint32_t at = 0; at < size; at++)
        transmit(data[at], 1);
    transmit(~checksum, 4);
}

static void serve(void) {
    static uint8_t payload[PAYLOAD];
    int failed = 0;
    checksum = 0xffffffff;
    int kind = (int)receive(1, &failed);
    uint8_t *address = (uint8_t *)(uintptr_t)receive(8, &failed);
    uint32_t size = (uint32_t)receive(4, &failed);
    failed |= size > PAYLOAD;
    for (uint32_t at = 0; kind == FRAME_WRITE && at < size && !failed; at++)
        payload[at] = (uint8_t)receive(1, &failed);
    uint32_t expected = ~checksum;
    if ((uint32_t)receive(4, &failed) != expected || failed) {
        answer(FRAME_REJECTED, 0, 0);
    } else if (kind == FRAME_READ) {
        answer(kind, address, size);
    } else if (kind == FRAME_WRITE) {
        memcpy(address, payload, size);
        answer(kind, 0, 0);
    } else if (kind == FRAME_RUN) {
        run_batch();
        answer(kind, 0, 0);
    } else {
        answer(FRAME_IDENTIFY, (const uint8_t *)&motet_board, sizeof motet_board);
    }
}

void agent_main(void) {
    port_start();
    motet_mailbox.digest = DIGEST;
    for (uint32_t idle = 0;; idle++) {
        if (motet_mailbox.request)
            run_batch();
        motet_pause();
        int byte = serial_byte();
        if (byte == FRAME_REQUEST)
            serve(), idle = 0;
        else if (idle > 2000 && !motet_mailbox.request)
            port_sleep();
    }
}
