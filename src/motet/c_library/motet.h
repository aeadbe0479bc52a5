/* Runs artifacts of Motet on the processor of this machine, without Python. The guide is docs/c_api.md.

   Functions that can fail return MOTET_OK or another status; motet_error then tells the calling thread what was wrong,
   in one line. Any number of threads may use an artifact at the same time, until one closes it. */
#ifndef MOTET_H
#define MOTET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum {
    MOTET_OK = 0,
    MOTET_INVALID_ARGUMENT = 1, /* of a function of this library: a null pointer, a number out of range */
    MOTET_INVALID_ARTIFACT = 2, /* it is missing, damaged, or no artifact */
    MOTET_UNSUPPORTED = 3,      /* it needs another device, processor, version, or Motet's runtime */
    MOTET_INVALID_CALL = 4,     /* tensors that the function does not take, or a check that failed, as an index */
    MOTET_OUT_OF_MEMORY = 5,
};

typedef struct motet_artifact motet_artifact; /* a loaded program and its threads */
typedef struct motet_function motet_function; /* belongs to its artifact, and lives as long */

/* What a function takes or returns. `dtype` is MLIR's spelling: f32, bf16, i64, i1, ui8, … Elements of fewer than 8
   bits take a byte each. `extents` are -1 where they are dynamic; `symbols` then has the name of the extent, which is the
   same in all tensors, or null for a result's extent that is computed from others. `destination` is the input in whose
   memory a result is written, or -1. `state` is the name of the global of the program that it is, or null. */
typedef struct {
    const char *name;
    const char *dtype;
    size_t element_size;
    size_t rank;
    const int64_t *extents;
    const char *const *symbols;
    int64_t destination;
    const char *state;
} motet_spec;

/* A caller's tensor: `rank` extents, and elements in row-major order, aligned as in C. `data` may be null if there are
   no elements, and for a result with a destination. */
typedef struct {
    void *data;
    const char *dtype;
    size_t rank;
    const int64_t *extents;
} motet_tensor;

/* The version of the library: "0.1.0". */
const char *motet_version(void);

/* Why the last function of this thread failed that did. */
const char *motet_error(void);

/* Opens the artifact in a file, which is mapped and must not change, or a copy of the one in memory. Calls run on
   `threads` threads, the caller's included; 0: one for each processor that this process may use. */
int motet_open(const char *path, int threads, motet_artifact **artifact);
int motet_open_memory(const void *data, size_t size, int threads, motet_artifact **artifact);

/* Frees an artifact, which may be null. No call of it may be running. */
void motet_close(motet_artifact *artifact);

/* Function number `index`, from 0, or the one called `name`; null if there is none. */
const motet_function *motet_function_at(const motet_artifact *artifact, size_t index);
const motet_function *motet_find_function(const motet_artifact *artifact, const char *name);
const char *motet_function_name(const motet_function *function);

/* Input or result number `index`, from 0; null if there is none. */
const motet_spec *motet_input(const motet_function *function, size_t index);
const motet_spec *motet_result(const motet_function *function, size_t index);

/* Writes the extents of result `result` for inputs with these extents to `extents`, which has room for the rank of the
   result. `data` is only read where extents follow from values, such as the number of elements that are not zero. */
int motet_result_extents(
    const motet_function *function, const motet_tensor *inputs, size_t input_count, size_t result, int64_t *extents);

/* Runs a function. Results are written to memory of the caller, which shares none with another tensor; inputs with a
   destination are written, too. */
int motet_call(
    const motet_function *function, const motet_tensor *inputs, size_t input_count, const motet_tensor *results,
    size_t result_count);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
