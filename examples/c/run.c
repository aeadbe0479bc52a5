/* Runs the first function of an artifact: run MODEL.motet [FILE ...], with the elements of one input in each file.
   Inputs without a file are random numbers if they are f32, else zeros; dynamic extents are then 1. */
#include <motet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16 };

static int fail(void) { return fprintf(stderr, "error: %s\n", motet_error()), 1; }

static size_t elements(const motet_tensor *tensor) {
    size_t count = 1;
    for (size_t axis = 0; axis < tensor->rank; axis++) count *= (size_t)tensor->extents[axis];
    return count;
}

static motet_tensor read_input(const motet_spec *spec, const char *path) {
    int64_t *extents = calloc(spec->rank + 1, sizeof *extents);
    for (size_t axis = 0; axis < spec->rank; axis++) extents[axis] = spec->extents[axis] < 0 ? 1 : spec->extents[axis];
    motet_tensor tensor = {NULL, spec->dtype, spec->rank, extents};
    size_t count = elements(&tensor);
    float *numbers = tensor.data = calloc(count + 1, spec->element_size);
    FILE *file = path ? fopen(path, "rb") : NULL;
    if (path && (!file || fread(tensor.data, spec->element_size, count, file) != count)) {
        fprintf(stderr, "error: %s: expected a file of %zu elements of %s\n", path, count, spec->dtype);
        exit(1);
    }
    if (file) fclose(file);
    for (size_t i = 0; !path && !strcmp(spec->dtype, "f32") && i < count; i++) numbers[i] = (float)rand() / (float)RAND_MAX;
    return tensor;
}

int main(int count, char **arguments) {
    motet_artifact *artifact;
    motet_tensor inputs[MOST], results[MOST];
    const motet_spec *spec;
    size_t given = 0, made = 0;
    if (motet_open(count > 1 ? arguments[1] : NULL, 0, &artifact)) return fail();
    const motet_function *function = motet_function_at(artifact, 0);
    for (; given < MOST && (spec = motet_input(function, given)); given++)
        inputs[given] = read_input(spec, (int)given + 2 < count ? arguments[given + 2] : NULL);
    for (; made < MOST && (spec = motet_result(function, made)); made++) {
        int64_t *extents = calloc(spec->rank + 1, sizeof *extents);
        if (motet_result_extents(function, inputs, given, made, extents)) return fail();
        results[made] = (motet_tensor){NULL, spec->dtype, spec->rank, extents};
        results[made].data = spec->destination < 0 ? calloc(elements(&results[made]) + 1, spec->element_size)
                                                   : inputs[spec->destination].data;
    }
    if (motet_call(function, inputs, given, results, made)) return fail();
    for (size_t i = 0; i < made; i++) {
        const float *numbers = results[i].data;
        printf("%s: ", motet_result(function, i)->name);
        for (size_t axis = 0; axis < results[i].rank; axis++) printf("%lldx", (long long)results[i].extents[axis]);
        printf("%s", results[i].dtype);
        for (size_t at = 0; !strcmp(results[i].dtype, "f32") && at < 4 && at < elements(&results[i]); at++)
            printf(" %g", numbers[at]);
        printf("\n");
    }
    motet_close(artifact);
    return 0;
}
