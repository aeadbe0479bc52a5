/* Opens an artifact with bits flipped and cut short, and runs it: damage ROUNDS SEED FILE. Each must be refused in one
   line, or compute what the whole file computes. With 0 ROUNDS it opens FILE ..., and evaluates extents, without a call:
   their hashes fit, but not what is in them. */
#include <motet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;

static size_t below(size_t limit) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (size_t)(state % limit);
}

static void *fill(const motet_spec *spec, int64_t *extents, motet_tensor *tensor, size_t *bytes) {
    *bytes = spec->element_size;
    for (size_t axis = 0; axis < spec->rank; axis++) *bytes *= (size_t)extents[axis];
    *tensor = (motet_tensor){calloc(*bytes + 1, 1), spec->dtype, spec->rank, extents};
    return tensor->data;
}

/* The status, and in `sum` the sum of the results' bytes. */
static int try(const void *data, size_t size, uint64_t *sum) {
    motet_artifact *artifact = NULL;
    motet_tensor inputs[4], results[4];
    int64_t extents[8][8] = {{0}};
    size_t count = 0, given = 0, bytes[4];
    int status = motet_open_memory(data, size, 2, &artifact);
    const motet_function *function = motet_function_at(artifact, 0);
    for (const motet_spec *spec; given < 4 && (spec = motet_input(function, given)); given++) {
        for (size_t axis = 0; axis < spec->rank; axis++) extents[given][axis] = spec->extents[axis] < 0 ? 3 : spec->extents[axis];
        uint8_t *content = fill(spec, extents[given], &inputs[given], bytes);
        for (size_t i = 3; i < bytes[0]; i += 4) content[i] = 0x3f; /* numbers about 0.5 */
    }
    for (const motet_spec *spec; !status && count < 4 && (spec = motet_result(function, count)); count++) {
        status = motet_result_extents(function, inputs, given, count, extents[4 + count]);
        fill(spec, extents[4 + count], &results[count], &bytes[count]);
    }
    if (!status && function) status = motet_call(function, inputs, given, results, count);
    *sum = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t at = 0; !status && at < bytes[i]; at++) *sum = *sum * 31 + ((uint8_t *)results[i].data)[at];
    for (size_t i = 0; i < given; i++) free(inputs[i].data);
    for (size_t i = 0; i < count; i++) free(results[i].data);
    motet_close(artifact);
    return status;
}

static int open_all(int count, char **paths) {
    int refused = 0;
    for (int i = 0; i < count; i++) {
        static int64_t extents[64], shapes[64][64];
        static motet_tensor inputs[64];
        motet_artifact *artifact;
        const motet_function *function;
        int status = motet_open(paths[i], 1, &artifact);
        for (size_t number = 0; !status && (function = motet_function_at(artifact, number)); number++) {
            size_t given = 0, result = 0;
            for (const motet_spec *spec; given < 64 && (spec = motet_input(function, given)); given++) {
                for (size_t axis = 0; axis < spec->rank; axis++)
                    shapes[given][axis] = spec->extents[axis] < 0 ? 3 : spec->extents[axis];
                inputs[given] = (motet_tensor){NULL, spec->dtype, spec->rank, shapes[given]};
            }
            for (; motet_result(function, result) && !status; result++)
                status = motet_result_extents(function, inputs, given, result, extents);
        }
        if (status ? !*motet_error() || strchr(motet_error(), '\n') : 0) return 1;
        refused += status != 0;
        motet_close(artifact);
    }
    printf("%d refused\n", refused);
    return 0;
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    if (!atoi(arguments[1])) return open_all(count - 3, arguments + 3);
    FILE *file = fopen(arguments[3], "rb");
    if (!file || fseek(file, 0, SEEK_END)) return 2;
    size_t size = (size_t)ftell(file), refused = 0;
    uint8_t *whole = malloc(size), *changed = malloc(size);
    uint64_t expected, sum;
    rewind(file);
    if (fread(whole, 1, size, file) != size || try(whole, size, &expected)) return 2;
    fclose(file);
    state = strtoull(arguments[2], NULL, 10) * 2 + 1;
    for (int round = 0, rounds = atoi(arguments[1]); round < rounds; round++) {
        size_t kept = round % 4 == 3 ? below(size) : size;
        memcpy(changed, whole, size);
        for (int flips = kept < size ? 0 : round % 8 ? 1 : 5; flips; flips--) {
            size_t at = below(size);
            while (round % 2 && !whole[at]) at = (at + 1) % size; /* not the padding */
            changed[at] ^= (uint8_t)(1 << below(8));
        }
        int status = try(changed, kept, &sum);
        refused += status != 0;
        if (status ? !*motet_error() || strchr(motet_error(), '\n') : sum != expected) {
            printf("round %d: status %d: %s\n", round, status, motet_error());
            return 1;
        }
    }
    printf("%zu refused\n", refused);
    free(whole), free(changed);
    return 0;
}
