/* The thread pool.

   The tasks of a job are divided into one *share* per thread, generation << 32 | remaining tasks, always in the
   same way, so that a thread works on data that its caches hold from the previous job. By compare-and-swap, a
   thread claims three quarters of the rest of its share, and when that is empty, half of the rest of the next ones:
   tasks of other threads need data from elsewhere. A thread reads the job's description only after a claim, and it
   cannot change before the claimed tasks are reported, so that the pool never waits for a thread without a claim.
   Threads without work spin, then sleep, until the *ticket*, generation << 32, changes. The submitter works too,
   then spins, then sleeps on the count of finished tasks. (Shares with stealing: Markatos and LeBlanc, "Using
   Processor Affinity in Loop Scheduling on Shared-Memory Multiprocessors", 1994.) */
#include "executor.h"

enum { FUTEX_WAIT = 128, FUTEX_WAKE = 129 }; /* of <linux/futex.h>, private to the process */
enum { MADV_HUGEPAGE = 14, HUGE_PAGE = 2 << 20 };
#define GENERATION (UINT64_C(1) << 32)

static void sleep_on(uint32_t *word, uint32_t value) {
    syscall(SYS_FUTEX, word, FUTEX_WAIT, value, NULL, NULL, 0);
}

static void wake(uint32_t *word, int threads) { syscall(SYS_FUTEX, word, FUTEX_WAKE, threads, NULL, NULL, 0); }

/* The half of the ticket on which workers sleep. */
static uint32_t *generation_word(struct pool *pool) { return (uint32_t *)&pool->ticket + 1; }

/* The lanes with the threads' shares: the submitter's, which is the first, then the workers'. */
static struct lane *shares(struct pool *pool) { return &pool->lanes[SUBMITTERS - 1]; }

/* Pauses, for measuring how long one takes. */
void motet_spin(uint64_t count) {
    uint64_t i = 0;
    do pause();
    while (++i < count);
}

/* The lane's memory, of at least `need` bytes: 64-byte aligned, in huge pages where large; null if there is none. */
static void *ensure(struct lane *lane, uint64_t need) {
    if (lane->size >= need) return lane->address;
    free(lane->address);
    bool large = need >= HUGE_PAGE / 2;
    uint64_t alignment = large ? HUGE_PAGE : 64;
    uint64_t size = (need + alignment - 1) & -alignment;
    lane->address = aligned_alloc(alignment, size);
    lane->size = lane->address ? size : 0;
    if (lane->size >= HUGE_PAGE / 2) madvise(lane->address, size, MADV_HUGEPAGE);
    return lane->address;
}

/* Claims tasks of a share, the thread's own or another's. Returns their number; *left is how many there were. */
static uint32_t claim(uint64_t *share, bool own, uint32_t *left) {
    uint64_t ticket = load(share, ACQUIRE);
    uint32_t count;
    do {
        *left = (uint32_t)ticket;
        if (!*left) return 0;
        count = own ? *left - *left / 4 : *left > 1 ? *left / 2 : 1;
    } while (!swap(share, &ticket, ticket - count, ACQ_REL, ACQUIRE));
    return count;
}

/* Claims tasks of the current job, of share `home` first, and runs them until none is left to claim. */
static void participate(struct pool *pool, struct lane *lane, uint64_t home) {
    uint64_t workers = load(&pool->workers, RELAXED);
    uint32_t done = 0, target = 0;
    for (uint64_t at = home, passed = 0; passed <= workers;) {
        uint32_t left, count = claim(&shares(pool)[at].share, at == home, &left);
        if (!count) {
            passed++;
            at = at < workers ? at + 1 : 0;
            continue;
        }
        passed = 0;
        target = (uint32_t)pool->target;
        /* The share ends (at + 1) * base + min(at + 1, extra) tasks after the first. */
        uint64_t end = pool->end - target + (at + 1) * pool->base + min(at + 1, pool->extra);
        uint64_t need = pool->scratch;
        void *scratch = need ? ensure(lane, need) : NULL;
        if (need && !scratch) store(&pool->failed, 1, RELAXED);
        else pool->function(pool->buffers, pool->sizes, end - left, end - left + count, scratch);
        done += count;
    }
    if (done && __atomic_add_fetch(&pool->done, done, __ATOMIC_SEQ_CST) == target && load(&pool->waiting, SEQ_CST))
        wake(&pool->done, 1);
}

/* The life of a worker; returns when the pool stops. */
void motet_worker(struct pool *pool, struct lane *lane) {
    uint64_t limit = pool->spin, home = (uint64_t)(lane - shares(pool)), spins = 0;
    uint32_t past = 0;
    for (;;) {
        uint32_t generation = (uint32_t)(load(&pool->ticket, ACQUIRE) >> 32);
        if (generation != past) {
            participate(pool, lane, home);
            past = generation;
            spins = 0;
        } else if (load(&pool->stop, RELAXED)) {
            return;
        } else if (++spins < limit) {
            pause();
        } else {
            __atomic_fetch_add(&pool->sleepers, 1, __ATOMIC_SEQ_CST);
            sleep_on(generation_word(pool), generation);
            __atomic_fetch_sub(&pool->sleepers, 1, __ATOMIC_SEQ_CST);
            spins = 0;
        }
    }
}

/* Tells the workers to return. The new generation keeps one that is about to sleep from it. */
void motet_stop(struct pool *pool) {
    store(&pool->stop, 1, SEQ_CST);
    __atomic_fetch_add(&pool->ticket, GENERATION, __ATOMIC_SEQ_CST);
    wake(generation_word(pool), INT32_MAX);
}

/* Wakes as many workers as the job's tasks can use beyond those that are awake. */
static void wake_workers(struct pool *pool, uint32_t target, uint32_t workers) {
    uint32_t sleepers = load(&pool->sleepers, SEQ_CST);
    if (!sleepers) return;
    uint32_t useful = target - 1 < workers ? target - 1 : workers;
    int lacking = (int)(useful - (workers - sleepers));
    if (lacking > 0) wake(generation_word(pool), lacking);
}

static void wait_for_end(struct pool *pool, uint32_t target) {
    for (uint64_t spins = 0, limit = pool->spin; load(&pool->done, ACQUIRE) != target; pause()) {
        if (++spins < limit) continue;
        store(&pool->waiting, 1, SEQ_CST);
        for (uint32_t done; (done = load(&pool->done, SEQ_CST)) != target;) sleep_on(&pool->done, done);
        store(&pool->waiting, 0, RELAXED);
        return;
    }
}

/* Runs the command's tasks from `begin` on in all threads; the caller holds the pool's lock. */
static void fork_join(struct pool *pool, const struct command *command, void **buffers, uint64_t begin, uint64_t need,
                      struct lane *lane) {
    uint64_t tasks = command->tasks - begin, workers = pool->workers;
    pool->function = command->function;
    pool->buffers = buffers;
    pool->sizes = command->sizes;
    pool->end = command->tasks;
    pool->target = tasks;
    pool->scratch = need;
    store(&pool->done, 0, RELAXED);
    uint64_t ticket = load(&pool->ticket, RELAXED) + GENERATION;
    uint64_t base = pool->base = tasks / (workers + 1), extra = pool->extra = tasks % (workers + 1);
    for (uint64_t i = 0; i <= workers; i++) store(&shares(pool)[i].share, ticket | (base + (i < extra)), RELEASE);
    store(&pool->ticket, ticket, SEQ_CST);
    wake_workers(pool, (uint32_t)tasks, (uint32_t)workers);
    participate(pool, lane, 0);
    wait_for_end(pool, (uint32_t)tasks);
}

/* Runs the command: in all threads while the pool is free, in this one while another submitter has it. Returns whether
   a thread had no memory for its scratch. */
static bool parallel(struct pool *pool, const struct command *command, void **buffers, uint64_t need,
                     struct lane *lane, void *scratch) {
    for (uint64_t begin = 0, end; begin < command->tasks; begin = end) {
        if (!load(&pool->lock, RELAXED) && swap(&pool->lock, &(uint32_t){0}, 1, ACQUIRE, RELAXED)) {
            store(&pool->failed, 0, RELAXED);
            fork_join(pool, command, buffers, begin, need, lane);
            bool failed = load(&pool->failed, RELAXED);
            store(&pool->lock, 0, RELEASE);
            return failed;
        }
        uint64_t portion = (command->tasks - begin) >> pool->shift;
        end = begin + (portion ? portion : 1);
        command->function(buffers, command->sizes, begin, end, scratch);
    }
    return false;
}
