/* Functions with extents that follow from values: a call runs another function first, which computes the values, and
   what it computes on the way. See runtime/valued.py. */
#define _GNU_SOURCE
#include <string.h>

#include "internal.h"

static bool is_same(const struct tensor *one, const struct tensor *other) {
    bool same = one->dtype == other->dtype && one->spec.rank == other->spec.rank;
    for (size_t axis = 0; same && axis < one->spec.rank; axis++)
        same = one->spec.extents[axis] == other->spec.extents[axis];
    return same;
}

/* Finds the function that computes an input, and checks that it takes the inputs before it and returns what is read.
   Extents that are dynamic are compared in each call. */
static void connect_value(struct motet_function *function, size_t number) {
    struct tensor *input = &function->inputs[number];
    struct motet_function *source = (struct motet_function *)motet_find_function(function->artifact, input->value_function);
    if (!source || source->given_count < source->input_count || source->input_count > number)
        damaged("%s: input %zu: no function of values '%s'", function->name, number, input->value_function);
    bool fits = source->result_count > input->value_result && !strcmp(source->results[0].spec.dtype, "i64");
    for (size_t i = 0; fits && i < source->input_count; i++) fits = is_same(&source->inputs[i], &function->inputs[i]);
    for (size_t i = 0; fits && i < source->result_count; i++) fits = source->results[i].spec.destination < 0;
    const motet_spec *numbers = &source->results[0].spec;
    if (fits && input->value_result)
        fits = is_same(input, &source->results[input->value_result]);
    else if (fits)
        fits = numbers->rank == 1 && (int64_t)input->value_index < numbers->extents[0] && input->spec.rank == 2
               && input->spec.extents[1] == 0 && !strcmp(input->spec.dtype, "i8");
    if (!fits) damaged("%s: input %zu: not what '%s' takes and returns", function->name, number, source->name);
    input->values = source;
    source->hidden = true;
}

void connect_values(struct motet_function *function) {
    for (size_t i = 0; i < function->input_count; i++)
        if (function->inputs[i].value_function && i >= function->given_count)
            connect_value(function, i);
        else if (function->inputs[i].value_function || i >= function->given_count)
            damaged("%s: input %zu: inputs that represent values come last", function->name, i);
}

/* The results of a function of values, in memory of the call. Its errors are those of `function`. */
static motet_tensor *compute(
    struct zone *zone, const struct motet_function *function, const struct motet_function *source,
    const motet_tensor *inputs) {
    motet_tensor *results = take(zone, source->result_count, sizeof *results);
    int status = MOTET_OK;
    for (size_t i = 0; i < source->result_count && !status; i++) {
        const motet_spec *spec = &source->results[i].spec;
        int64_t *extents = take(zone, spec->rank + 1, sizeof *extents);
        status = motet_result_extents(source, inputs, source->input_count, i, extents);
        size_t count = 1;
        for (size_t axis = 0; axis < spec->rank && !status; axis++) count *= (size_t)extents[axis];
        results[i] = (motet_tensor){take(zone, count, spec->element_size), spec->dtype, spec->rank, extents};
    }
    if (!status) status = motet_call(source, inputs, source->input_count, results, source->result_count);
    if (!status) return results;
    const char *text = print(zone, "%s", motet_error()), *begin = print(zone, "%s: ", source->name);
    bool own = !strncmp(text, begin, strlen(begin));
    raise_error(status, "%s: %s", function->name, own ? text + strlen(begin) : text);
}

const motet_tensor *complete_inputs(
    struct zone *zone, const struct motet_function *function, const motet_tensor *given) {
    motet_tensor *inputs = take(zone, function->input_count, sizeof *inputs);
    motet_tensor **computed = take(zone, function->input_count, sizeof *computed);
    memcpy(inputs, given, function->given_count * sizeof *inputs);
    for (size_t i = function->given_count; i < function->input_count; i++) {
        const struct tensor *input = &function->inputs[i];
        for (size_t other = function->given_count; other < i; other++)
            if (function->inputs[other].values == input->values) computed[i] = computed[other];
        if (!computed[i]) computed[i] = compute(zone, function, input->values, inputs);
        inputs[i] = computed[i][input->value_result];
        if (input->value_result) continue;
        int64_t number = ((const int64_t *)computed[i][0].data)[input->value_index];
        if (number < 0 || number > LARGEST_EXTENT)
            raise_error(MOTET_INVALID_CALL, "%s: %s: an extent or a place is %lld; expected %s", function->name,
                        input->operator, (long long)number, number < 0 ? "at least 0" : "at most 2^48");
        int64_t *extents = take(zone, 2, sizeof *extents);
        extents[0] = number;
        inputs[i] = (motet_tensor){NULL, input->spec.dtype, 2, extents}; /* without elements */
    }
    return inputs;
}
