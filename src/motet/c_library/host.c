/* The processor of this machine, memory for calls, and the threads of an artifact: workers of the executor's pool, whose
   code is that of the runtime in Python (drivers/host/executor/). */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

enum { MOST_THREADS = 1024, PERMISSION = 0x1023, TILES = 18, PAUSES = 500, HUGE_PAGE = 2 << 20 };
static const double SPIN_SECONDS = 100e-6, CROWDED_SPIN_SECONDS = 1e-6;

/* The executor's object, as part of the library. */
__asm__(".section .rodata\n.balign 16\nmotet_executor_begin:\n"
        ".incbin \"" MOTET_EXECUTOR "\"\nmotet_executor_end:\n.previous\n");
extern const uint8_t motet_executor_begin[] __attribute__((visibility("hidden")));
extern const uint8_t motet_executor_end[] __attribute__((visibility("hidden")));

/* -- the processor ----------------------------------------------------------------------------- */

/* Whether a line of flags in /proc/cpuinfo has a feature, which Linux may name otherwise than LLVM. */
static bool has_feature(const char *line, const char *feature) {
    static const char *const names[][2] = {MOTET_FEATURE_NAMES}; /* Linux's name, LLVM's name */
    for (const char *at = line; *at;) {
        size_t length = strcspn(at, " \t\n"), same = 0;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (!strcmp(names[i][1], feature) && strlen(names[i][0]) == length && !memcmp(names[i][0], at, length))
                return true;
        for (size_t i = 0; i < length; i++) /* without underscores: avx512_vnni is avx512vnni */
            if (at[i] != '_' && same != SIZE_MAX) same = feature[same] == at[i] ? same + 1 : SIZE_MAX;
        if (length && same != SIZE_MAX && !feature[same]) return true;
        at += length + strspn(at + length, " \t\n");
    }
    return false;
}

const char *processor_obstacle(struct zone *zone, const char *triple, const struct node *features) {
    size_t length = strcspn(triple, "-"), lines = 0, size = 0;
    if (strncmp(triple, "x86_64", length) || length != 6) return print(zone, "for %.*s", (int)length, triple);
    for (const struct node *node = features->first; node; node = node->next) of_kind(node, STRING, "features");
    char *line = NULL;
    const char *missing = NULL;
    bool tiles = false;
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && !missing && getline(&line, &size, file) > 0) {
        if (strncmp(line, "flags", 5)) continue;
        lines++;
        for (const struct node *node = features->first; node && !missing; node = node->next)
            if (!has_feature(line, node->text)) missing = node->text;
    }
    free(line);
    if (file) fclose(file);
    if (missing || (!lines && features->first))
        return print(zone, "needs %s, which the processor lacks", missing ? missing : "features");
    for (const struct node *node = features->first; node; node = node->next) tiles |= !strncmp(node->text, "amx", 3);
    if (tiles && syscall(SYS_arch_prctl, PERMISSION, TILES)) return "needs amx, which the operating system refuses";
    return NULL;
}

/* -- threads ----------------------------------------------------------------------------------- */

struct workers {
    uint8_t *pool;
    size_t size;
    int lanes, count;
    pid_t process; /* the child of a fork has no workers */
    void (*work)(void *pool, void *lane);
    void (*stop)(void *pool);
    pthread_t threads[MOST_THREADS];
};

struct start {
    struct workers *workers;
    uint8_t *lane;
};

static void *begin_work(void *argument) {
    struct start start = *(struct start *)argument;
    free(argument);
    start.workers->work(start.workers->pool, start.lane);
    return NULL;
}

static int64_t *word(struct workers *workers, size_t offset) { return (int64_t *)(workers->pool + offset); }

static int64_t pauses(struct code *executor, double seconds) {
    void (*spin)(int64_t) = (void (*)(int64_t))find_code(executor, "motet_spin");
    double best = 1;
    for (int i = 0; i < 5; i++) {
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        spin(PAUSES);
        clock_gettime(CLOCK_MONOTONIC, &end);
        double took = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
        if (took < best) best = took;
    }
    double pauses = seconds / (best > 1e-9 ? best / PAUSES : 1e-9);
    return pauses > 1 ? (int64_t)pauses : 1;
}

void start_threads(struct motet_artifact *artifact, int threads) {
    cpu_set_t set;
    int processors = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    if (threads < 0 || threads > MOST_THREADS)
        raise_error(MOTET_INVALID_ARGUMENT, "%d threads; expected 1 to %d, or 0", threads, MOST_THREADS);
    if (!threads) threads = processors < MOST_THREADS ? processors : MOST_THREADS;
    struct bytes object = {motet_executor_begin, (size_t)(motet_executor_end - motet_executor_begin)};
    load_objects(&artifact->executor, &object, &(const char *){"the executor"}, 1);
    artifact->run = (int (*)(void *, int64_t *, int64_t *))find_code(&artifact->executor, "motet_run_block");
    struct workers *workers = take(&artifact->zone, 1, sizeof *workers);
    workers->lanes = SUBMITTERS + threads - 1;
    workers->size = (size_t)(POOL_LANES + workers->lanes * LANE_STRIDE);
    workers->pool = map_pages(workers->size);
    artifact->workers = workers;
    workers->process = getpid();
    workers->work = (void (*)(void *, void *))find_code(&artifact->executor, "motet_worker");
    workers->stop = (void (*)(void *))find_code(&artifact->executor, "motet_stop");
    *word(workers, POOL_SHIFT) = 64 - __builtin_clzll(2 * (unsigned)threads - 1);
    double spin = threads <= processors ? SPIN_SECONDS : CROWDED_SPIN_SECONDS;
    *word(workers, POOL_SPIN) = pauses(&artifact->executor, spin);
    for (; workers->count < threads - 1; workers->count++) { /* if no more can start, those that have started do all */
        struct start *start = malloc(sizeof *start);
        if (!start) break;
        *start = (struct start){workers, workers->pool + POOL_LANES + (SUBMITTERS + workers->count) * LANE_STRIDE};
        if (pthread_create(&workers->threads[workers->count], NULL, begin_work, start)) {
            free(start);
            break;
        }
    }
    *word(workers, POOL_WORKERS) = workers->count;
    *(int32_t *)(workers->pool + POOL_STARTED) = 1;
}

void stop_threads(struct motet_artifact *artifact) {
    struct workers *workers = artifact->workers;
    if (!workers) return;
    bool own = workers->process == getpid();
    if (own && workers->count) workers->stop(workers->pool);
    for (int i = 0; own && i < workers->count; i++) pthread_join(workers->threads[i], NULL);
    for (int i = 0; i < workers->lanes; i++)
        free((void *)*word(workers, (size_t)(POOL_LANES + i * LANE_STRIDE + LANE_ADDRESS)));
    munmap(workers->pool, workers->size);
}

/* -- arenas ------------------------------------------------------------------------------------ */

/* The smallest that is free and large enough, or else a new one, in the place of the largest. */
struct arena take_arena(struct motet_artifact *artifact, size_t size) {
    struct arena *best = NULL, taken = {NULL, 0};
    if (!size) return taken;
    pthread_mutex_lock(&artifact->lock);
    for (struct arena *arena = artifact->arenas; arena < artifact->arenas + KEPT_ARENAS; arena++) {
        if (!arena->memory) continue;
        bool fits = arena->size >= size, better = !best || (fits ? best->size < size || arena->size < best->size
                                                                 : best->size < size && arena->size > best->size);
        if (better) best = arena;
    }
    if (best) taken = *best, *best = (struct arena){NULL, 0};
    pthread_mutex_unlock(&artifact->lock);
    if (taken.size >= size) return taken;
    free(taken.memory);
    size_t alignment = size < HUGE_PAGE / 2 ? ALIGNMENT : HUGE_PAGE;
    taken.size = (size_t)round_up((int64_t)size, (int64_t)alignment);
    taken.memory = aligned_alloc(alignment, taken.size);
    if (!taken.memory) raise_error(MOTET_OUT_OF_MEMORY, "out of memory: %zu bytes", size);
    if (alignment == HUGE_PAGE) madvise(taken.memory, taken.size, MADV_HUGEPAGE);
    return taken;
}

void give_arena(struct motet_artifact *artifact, struct arena given) {
    pthread_mutex_lock(&artifact->lock);
    for (struct arena *arena = artifact->arenas; given.memory && arena < artifact->arenas + KEPT_ARENAS; arena++)
        if (!arena->memory) *arena = given, given.memory = NULL;
    pthread_mutex_unlock(&artifact->lock);
    free(given.memory);
}
