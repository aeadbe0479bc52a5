/* The executor of schedules.

   Commands run in order in one native call. A command with a single task runs in the caller's thread. Commands that
   may run concurrently form a *wave* (`motet_wave`), one command with the tasks of all; `motet_wave_logged` also
   records which thread ran what when. Small commands with dependences among them form a *flow* (`motet_flow`): its
   tasks are threads that take pieces of the commands in order and wait for the dependences of a piece, which other
   threads have taken before. A submitter that finds the pool busy runs its tasks itself, and checks the pool again
   after each share. */
#include "executor.h"

enum { CLOCK_MONOTONIC = 1, FLOW_SPINS = 1024 };

static uint64_t now(void) {
    uint64_t time[2];
    clock_gettime(CLOCK_MONOTONIC, time);
    return time[0] * 1000000000 + time[1];
}

/* A run of tasks of a command; times are in nanoseconds. */
struct note {
    uint64_t command, thread, first, end, began, ended;
};

struct log {
    uint64_t count, room; /* notes that were made, and for how many there is room */
    struct note notes[];
};

/* This thread's number of the operating system, for the log if there is one. */
static inline uint64_t thread_number(const struct log *log) { return log ? (uint64_t)syscall(SYS_GETTID) : 0; }

/* Calls a member of a wave or a flow, and notes the call in `log` unless that is null. */
static inline void run_member(kernel *function, void **buffers, const uint64_t *sizes, void *scratch, struct note note,
                              struct log *log) {
    if (!log) {
        function(buffers, sizes, note.first, note.end, scratch);
        return;
    }
    note.began = now();
    function(buffers, sizes, note.first, note.end, scratch);
    note.ended = now();
    uint64_t place = __atomic_fetch_add(&log->count, 1, __ATOMIC_RELAXED);
    if (place < log->room) log->notes[place] = note;
}

/* Kernels as one, with their tasks one after the other. */
struct wave {
    uint64_t count;
    struct {
        kernel *function;
        uint64_t end;    /* one after its last task in the wave */
        uint64_t buffer; /* of the wave's buffers, its first */
        const uint64_t *sizes;
    } members[];
};

static inline __attribute__((always_inline)) void run_wave(const struct wave *wave, void **buffers, uint64_t begin,
                                                           uint64_t end, void *scratch, struct log *log,
                                                           uint64_t first) {
    uint64_t past = 0, number = 0, thread = thread_number(log);
    do {
        uint64_t until = wave->members[number].end;
        if (begin < until) {
            uint64_t to = min(until, end);
            struct note note = {first + number, thread, begin - past, to - past, 0, 0};
            run_member(wave->members[number].function, buffers + wave->members[number].buffer,
                       wave->members[number].sizes, scratch, note, log);
            begin = to;
        }
        past = until;
    } while (begin < end && ++number < wave->count);
}

/* A kernel that is several. `sizes` is a wave. */
void motet_wave(void **buffers, const uint64_t *sizes, uint64_t begin, uint64_t end, void *scratch) {
    run_wave((const struct wave *)sizes, buffers, begin, end, scratch, NULL, 0);
}

/* The same, with a note of each call of a member. `sizes`: the log, the number of the first member, the wave. */
void motet_wave_logged(void **buffers, const uint64_t *sizes, uint64_t begin, uint64_t end, void *scratch) {
    run_wave((const struct wave *)(sizes + 2), buffers, begin, end, scratch, (struct log *)sizes[0], sizes[1]);
}

struct flow_command {
    kernel *function;
    uint64_t buffer; /* of the flow's buffers, its first */
    const uint64_t *sizes;
    uint64_t number, word; /* the word counts its pieces that were done */
    uint64_t count;
    struct {
        uint64_t word, pieces;
    } needs[]; /* of which others it needs how many pieces */
};

/* Commands that wait for one another, done by as many threads as there are tasks. */
struct flow {
    uint64_t count; /* of units */
    uint64_t state; /* where among the buffers the flow's words begin, zero at first: how many units were taken, and
                       from the eighth on each command's */
    const struct {
        uint64_t first, count;
    } *units; /* consecutive pieces */
    const struct {
        const struct flow_command *command;
        uint64_t begin, end;
    } *pieces;
    struct log *log; /* or null */
    uint64_t first;  /* the number of the first command, for the log */
};

static void wait_for_pieces(const uint64_t *word, uint64_t wanted) {
    for (uint64_t spins = 0; load(word, ACQUIRE) < wanted;) {
        if (++spins < FLOW_SPINS) {
            pause();
        } else {
            sched_yield();
            spins = 0;
        }
    }
}

/* A kernel whose tasks are threads. `sizes` is a flow. */
void motet_flow(void **buffers, const uint64_t *sizes, uint64_t begin, uint64_t end, void *scratch) {
    const struct flow flow = *(const struct flow *)sizes;
    uint64_t *state = (uint64_t *)(buffers + flow.state), thread = thread_number(flow.log);
    for (uint64_t unit; (unit = __atomic_fetch_add(state, 1, __ATOMIC_RELAXED)) < flow.count;) {
        uint64_t piece = flow.units[unit].first, last = piece + flow.units[unit].count;
        do {
            const struct flow_command *command = flow.pieces[piece].command;
            for (uint64_t i = 0; i < command->count; i++)
                wait_for_pieces(state + command->needs[i].word, command->needs[i].pieces);
            struct note note = {flow.first + command->number, thread, flow.pieces[piece].begin,
                                flow.pieces[piece].end, 0, 0};
            run_member(command->function, buffers + command->buffer, command->sizes, scratch, note, flow.log);
            __atomic_fetch_add(state + command->word, 1, __ATOMIC_RELEASE);
        } while (++piece < last);
    }
}

/* A kernel: copies buffers[0] to buffers[1], sizes[0] bytes, in tasks of sizes[1] bytes. */
void motet_copy(void **buffers, const uint64_t *sizes, uint64_t begin, uint64_t end, void *scratch) {
    uint64_t first = begin * sizes[1];
    __builtin_memmove((char *)buffers[1] + first, (char *)buffers[0] + first, min(end * sizes[1], sizes[0]) - first);
}

static int run_commands(const struct program *program, const uint64_t *externals, uint64_t *times, struct lane *lane,
                        void *scratch) {
    struct pool *pool = program->pool;
    void **buffers = __builtin_alloca(program->most_buffers * sizeof *buffers);
    const struct command *command = program->commands, *end = command + program->count;
    bool alone = !pool->workers;
    for (; command < end; command++) {
        const struct reference *references = command->references;
        for (uint64_t i = 0, count = command->count; i < count; i++)
            buffers[i] = (void *)(externals[references[i].external] + references[i].offset);
        uint64_t began = times ? now() : 0;
        if (alone || command->tasks < 2)
            command->function(buffers, command->sizes, 0, command->tasks, scratch);
        else if (parallel(pool, command, buffers, program->scratch, lane, scratch))
            return 1;
        if (times) *times++ = now() - began;
    }
    return 0;
}

/* Takes a free submitter's lane. */
static int take_lane(struct pool *pool) {
    for (;;) {
        uint64_t busy = load(&pool->lanes_busy, RELAXED);
        if (!~busy) {
            sched_yield();
            continue;
        }
        int number = __builtin_ctzll(~busy);
        if (swap(&pool->lanes_busy, &busy, busy | UINT64_C(1) << number, ACQUIRE, RELAXED)) return number;
    }
}

/* Runs a program. externals[-1] is zero. `times`, unless null, gets each command's nanoseconds. Returns 0, or 1 if
   there was no memory for scratch. */
int motet_run(const struct program *program, const uint64_t *externals, uint64_t *times) {
    if (!program->scratch) return run_commands(program, externals, times, NULL, NULL);
    struct pool *pool = program->pool;
    int number = take_lane(pool);
    void *scratch = ensure(&pool->lanes[number], program->scratch);
    int status = scratch ? run_commands(program, externals, times, &pool->lanes[number], scratch) : 1;
    __atomic_fetch_and(&pool->lanes_busy, ~(UINT64_C(1) << number), __ATOMIC_RELEASE);
    return status;
}

/* The same for a block that begins with the zero. */
int motet_run_block(const struct program *program, const uint64_t *block, uint64_t *times) {
    return motet_run(program, block + 1, times);
}
