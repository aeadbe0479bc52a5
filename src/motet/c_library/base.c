/* Errors of the calling thread, memory that is freed as a whole, and checked ranges. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

enum { FIRST_BLOCK = 1 << 9, LARGEST_BLOCK = 1 << 16 }; /* bytes; each is twice as large as the one before */

struct block {
    struct block *next;
    size_t used, size;
    _Alignas(16) uint8_t data[];
};

static _Thread_local struct {
    jmp_buf *handler;
    int status;
    char text[1024];
} error;

const char *motet_version(void) { return MOTET_VERSION; }
const char *motet_error(void) { return error.text; }

int protect(void (*body)(void *), void *context) {
    jmp_buf handler, *outer = error.handler;
    int status = MOTET_OK;
    error.handler = &handler;
    if (setjmp(handler) == 0)
        body(context);
    else
        status = error.status;
    error.handler = outer;
    return status;
}

void raise_error(int status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error.text, sizeof error.text, format, arguments);
    va_end(arguments);
    for (char *at = error.text; *at; at++)
        if ((uint8_t)*at < ' ') *at = ' '; /* texts of artifacts cannot break the line */
    raise_again(status);
}

void raise_again(int status) {
    error.status = status;
    longjmp(*error.handler, 1);
}

void *take(struct zone *zone, size_t count, size_t size) {
    size_t needed;
    if (__builtin_mul_overflow(count, size, &needed) || needed > PTRDIFF_MAX - LARGEST_BLOCK)
        raise_error(MOTET_OUT_OF_MEMORY, "out of memory: %zu times %zu bytes", count, size);
    needed = (needed + 15) / 16 * 16;
    struct block *block = zone->blocks;
    if (!block || block->size - block->used < needed) {
        size_t room = block ? block->size * 2 : FIRST_BLOCK;
        if (room > LARGEST_BLOCK) room = LARGEST_BLOCK;
        if (room < needed) room = needed;
        block = calloc(1, sizeof *block + room);
        if (!block) raise_error(MOTET_OUT_OF_MEMORY, "out of memory: %zu bytes", room);
        *block = (struct block){zone->blocks, 0, room};
        zone->blocks = block;
    }
    void *taken = block->data + block->used;
    block->used += needed;
    return taken;
}

const char *print(struct zone *zone, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    size_t size = (size_t)vsnprintf(NULL, 0, format, arguments) + 1;
    char *text = take(zone, size, 1); /* where this raises, the lists are left: they hold no memory */
    vsnprintf(text, size, format, again);
    va_end(again);
    va_end(arguments);
    return text;
}

void free_zone(struct zone *zone) {
    while (zone->blocks) {
        struct block *block = zone->blocks;
        zone->blocks = block->next;
        free(block);
    }
}

void *map_pages(size_t size) {
    void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) raise_error(MOTET_OUT_OF_MEMORY, "out of memory: %zu bytes", size);
    return pages;
}

struct bytes slice(struct bytes all, uint64_t offset, uint64_t size, const char *what) {
    if (offset > all.size || size > all.size - offset)
        damaged("%s: %llu bytes from byte %llu on; there are %zu", what, (unsigned long long)size,
                (unsigned long long)offset, all.size);
    return (struct bytes){all.data + offset, size};
}
