/* Calls: a function for the extents of a call becomes a table of the executor, which
   is kept for later calls. See runtime/instantiate.py and drivers/host/native.py, whose checks these are. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { KEPT_INSTANCES = 16, COPY_BLOCK = 256 << 10, LONGEST_SHAPE = 160 };
static const int64_t MOST_TASKS = (int64_t)1 << 31;

/* A function for given extents. */
struct instance {
    struct instance *next;
    struct zone zone;
    int users;               /* calls, and the function's list */
    const int64_t *symbols;
    int64_t **extents;       /* of the inputs, then of the results … */
    int64_t *bytes;          /* … and their sizes */
    int64_t arena, statuses; /* bytes of the arena, and where its statuses begin */
    int64_t *program;
};

/* -- messages ---------------------------------------------------------------------------------- */

/* "3x224", "nx5", or "scalar". */
static const char *show_shape(
    char text[LONGEST_SHAPE], size_t rank, const int64_t *extents, const char *const *symbols) {
    size_t at = (size_t)snprintf(text, LONGEST_SHAPE, "%s", rank ? "" : "scalar");
    for (size_t axis = 0; axis < rank && at < LONGEST_SHAPE; axis++) {
        const char *cross = axis ? "x" : "";
        if (symbols && extents[axis] < 0)
            at += (size_t)snprintf(text + at, LONGEST_SHAPE - at, "%s%s", cross, symbols[axis] ? symbols[axis] : "?");
        else
            at += (size_t)snprintf(text + at, LONGEST_SHAPE - at, "%s%lld", cross, (long long)extents[axis]);
    }
    return text;
}

static noreturn void refuse(
    const struct motet_function *function, const char *what, size_t index, const motet_spec *spec, const char *quality,
    const char *given, const char *expected) {
    bool named = *spec->name;
    raise_error(MOTET_INVALID_CALL, "%s: %s %zu%s%s%s: %s%s given, %s expected", function->name, what, index,
                named ? " (\"" : "", spec->name, named ? "\")" : "", quality, given, expected);
}

/* -- instances --------------------------------------------------------------------------------- */

static bool uses(const struct expression *expression, size_t symbol) {
    if (expression->kind == '$') return (size_t)expression->number == symbol;
    return expression->left && (uses(expression->left, symbol) || uses(expression->right, symbol));
}

static bool is_fulfilled(char relation, int64_t left, int64_t right) {
    switch (relation) {
    case 'a': return left <= right;
    case 'm': return right ? left % right == 0 : left == 0;
    case 's': return left == right || left == 1;
    case 'b': return left == right || left == 1 || right == 1;
    case 't': return left != 0;
    default: return left == right;
    }
}

static void check_constraints(const struct motet_function *function, const int64_t *symbols) {
    for (size_t i = 0; i < function->constraint_count; i++) {
        const struct constraint *own = &function->constraints[i];
        int64_t left = evaluate(own->left, symbols), right = evaluate(own->right, symbols);
        if (is_fulfilled(own->relation, left, right)) continue;
        char numbers[64] = "", axes[512] = "";
        if (own->relation != 't')
            snprintf(numbers, sizeof numbers, ": %lld and %lld", (long long)left, (long long)right);
        for (size_t s = 0, at = 0; s < function->symbol_count && at < sizeof axes; s++) {
            const struct symbol *symbol = &function->symbols[s];
            bool given = symbol->input < function->given_count; /* others represent values */
            if (given && (uses(own->left, s) || uses(own->right, s)))
                at += (size_t)snprintf(
                    axes + at, sizeof axes - at, "%saxis %zu of %s is %lld", at ? ", " : *numbers ? "; " : ": ",
                    symbol->axis, function->inputs[symbol->input].spec.name, (long long)symbols[s]);
        }
        raise_error(MOTET_INVALID_CALL, "%s: %s%s%s", function->name, own->text, numbers, axes);
    }
}

static void evaluate_shape(struct instance *instance, const struct motet_function *function, size_t index) {
    bool result = index >= function->input_count, empty = false, over = false;
    const struct tensor *tensor = result ? &function->results[index - function->input_count] : &function->inputs[index];
    int64_t *extents = take(&instance->zone, tensor->spec.rank, sizeof *extents), bytes = (int64_t)tensor->dtype->size;
    for (size_t axis = 0; axis < tensor->spec.rank; axis++) {
        extents[axis] = evaluate(tensor->extents[axis], instance->symbols);
        empty |= extents[axis] == 0;
        over |= extents[axis] < 0;
    }
    for (size_t axis = 0; !empty && axis < tensor->spec.rank; axis++)
        over |= __builtin_mul_overflow(bytes, extents[axis], &bytes);
    char text[LONGEST_SHAPE];
    if (over || bytes >= LIMIT)
        raise_error(MOTET_INVALID_CALL, "%s: %s: shape %s", function->name, tensor->spec.name,
                    show_shape(text, tensor->spec.rank, extents, NULL));
    instance->extents[index] = extents;
    instance->bytes[index] = empty ? 0 : bytes;
    int64_t home = tensor->spec.destination;
    if (result && home >= 0
        && (function->inputs[home].spec.rank != tensor->spec.rank
            || memcmp(extents, instance->extents[home], tensor->spec.rank * sizeof *extents)))
        damaged("%s: %s: its shape is not its destination's", function->name, tensor->spec.name);
}

/* A buffer's place for the executor: the number of an address of a call, or -1, and an offset, from 0 for constants. */
static int64_t refer(
    const struct instance *instance, const struct motet_function *function, size_t number, int64_t place[2]) {
    const struct buffer *buffer = &function->buffers[number];
    const struct parameter *parameter = &function->artifact->parameters[buffer->kind == 'p' ? buffer->index : 0];
    int64_t size = evaluate(buffer->bytes, instance->symbols), all = instance->arena;
    int64_t offset = evaluate(buffer->offset, instance->symbols);
    size_t tensors = function->input_count + function->result_count;
    size_t index = buffer->kind == 'r' ? function->input_count + buffer->index : buffer->index;
    place[0] = (int64_t)(buffer->kind == 'i' || buffer->kind == 'r' ? index : tensors);
    if (buffer->kind == 'p') all = parameter->bytes;
    if (buffer->kind == 'i' || buffer->kind == 'r') all = instance->bytes[index];
    if (buffer->kind == 's') offset = instance->statuses + STATUS_BYTES * (int64_t)buffer->index;
    if (offset < 0 || size < 0 || size > all || offset > all - size || (buffer->kind != 's' && offset % ALIGNMENT))
        damaged("%s: buffer %zu: bytes %lld to %lld; there are %lld", function->name, number, (long long)offset,
                (long long)offset + (long long)size, (long long)all);
    place[1] = offset;
    if (buffer->kind == 'p') place[0] = -1, place[1] = (int64_t)(parameter->data + offset);
    return size;
}

/* Writes one command to `at`; returns whether it has anything to do. */
static bool write_command(
    struct instance *instance, const struct motet_function *function, const struct command *command, int64_t *at) {
    int64_t (*places)[2] = take(&instance->zone, command->buffer_count, sizeof *places), size = 0, before = 0;
    for (size_t i = 0; i < command->buffer_count; i++) {
        before = size;
        size = refer(instance, function, command->buffers[i], places[i]);
    }
    size_t count = command->copies ? 2 : command->size_count;
    int64_t *sizes = take(&instance->zone, count, sizeof *sizes), tasks;
    for (size_t i = 0; !command->copies && i < count; i++) sizes[i] = evaluate(command->sizes[i], instance->symbols);
    void *code = command->code;
    if (command->copies) {
        if (before != size)
            damaged("%s: copy of %lld bytes to %lld", function->name, (long long)before, (long long)size);
        code = find_code(&function->artifact->executor, "motet_copy");
        sizes[0] = size;
        sizes[1] = size / MOST_TASKS >= COPY_BLOCK ? size / MOST_TASKS + 1 : COPY_BLOCK;
        tasks = (size + sizes[1] - 1) / sizes[1];
    } else
        tasks = evaluate(command->tasks, instance->symbols);
    if (tasks > MOST_TASKS)
        damaged("%s: %lld tasks; expected at most %lld", function->name, (long long)tasks, (long long)MOST_TASKS);
    at[COMMAND_FUNCTION / 8] = (int64_t)code;
    at[COMMAND_TASKS / 8] = tasks;
    at[COMMAND_REFERENCES / 8] = (int64_t)places;
    at[COMMAND_COUNT / 8] = (int64_t)command->buffer_count;
    at[COMMAND_SIZES / 8] = (int64_t)sizes;
    if (instance->program[PROGRAM_MOST_BUFFERS / 8] < (int64_t)command->buffer_count)
        instance->program[PROGRAM_MOST_BUFFERS / 8] = (int64_t)command->buffer_count;
    if (tasks > 1) instance->program[PROGRAM_PARALLEL / 8] = 1;
    return tasks > 0;
}

struct building {
    const struct motet_function *function;
    struct instance *instance;
    const int64_t *symbols;
};

static void build(void *context) {
    const struct building *building = context;
    const struct motet_function *function = building->function;
    struct instance *instance = building->instance;
    size_t tensors = function->input_count + function->result_count;
    int64_t *symbols = take(&instance->zone, function->symbol_count, sizeof *symbols);
    instance->symbols = memcpy(symbols, building->symbols, function->symbol_count * sizeof *symbols);
    check_constraints(function, symbols);
    instance->extents = take(&instance->zone, tensors, sizeof *instance->extents);
    instance->bytes = take(&instance->zone, tensors, sizeof *instance->bytes);
    for (size_t i = 0; i < tensors; i++) evaluate_shape(instance, function, i);
    instance->statuses = round_up(evaluate(function->arena, instance->symbols), ALIGNMENT);
    if (instance->statuses < 0) damaged("%s: an arena of %lld bytes", function->name, (long long)instance->statuses);
    instance->arena = instance->statuses + STATUS_BYTES * (int64_t)function->check_count;
    int64_t *commands = take(&instance->zone, function->command_count, COMMAND_STRIDE), *next = commands;
    int64_t *program = instance->program = take(&instance->zone, 1, PROGRAM_STRIDE);
    for (size_t i = 0; i < function->command_count; i++)
        if (write_command(instance, function, &function->commands[i], next)) next += COMMAND_STRIDE / 8;
    program[PROGRAM_POOL / 8] = *(int64_t *)function->artifact->workers; /* its first field */
    program[PROGRAM_COMMANDS / 8] = (int64_t)commands;
    program[PROGRAM_COUNT / 8] = (next - commands) / (COMMAND_STRIDE / 8);
    program[PROGRAM_SCRATCH / 8] = function->scratch;
}

static void release(struct motet_artifact *artifact, struct instance *instance) {
    if (!instance) return;
    pthread_mutex_lock(&artifact->lock);
    bool last = --instance->users == 0;
    pthread_mutex_unlock(&artifact->lock);
    if (last) {
        free_zone(&instance->zone);
        free(instance);
    }
}

/* The kept instance for these extents, first in the list from now on; null if there is none. */
static struct instance *find_instance(struct motet_function *function, const int64_t *symbols) {
    for (struct instance **at = &function->instances; *at; at = &(*at)->next) {
        struct instance *found = *at;
        if (memcmp(found->symbols, symbols, function->symbol_count * sizeof *symbols)) continue;
        *at = found->next;
        found->next = function->instances;
        function->instances = found;
        found->users++;
        return found;
    }
    return NULL;
}

static struct instance *instance_for(struct motet_function *function, const int64_t *symbols) {
    struct motet_artifact *artifact = function->artifact;
    pthread_mutex_lock(&artifact->lock);
    struct instance *found = find_instance(function, symbols);
    pthread_mutex_unlock(&artifact->lock);
    if (found) return found;
    struct instance *made = calloc(1, sizeof *made);
    if (!made) raise_error(MOTET_OUT_OF_MEMORY, "out of memory: %zu bytes", sizeof *made);
    int status = protect(build, &(struct building){function, made, symbols});
    if (status) {
        free_zone(&made->zone);
        free(made);
        raise_again(status);
    }
    made->users = 2;
    pthread_mutex_lock(&artifact->lock);
    made->next = function->instances;
    function->instances = made;
    struct instance **at = &function->instances, *oldest = NULL;
    for (int i = 0; *at && i < KEPT_INSTANCES; i++) at = &(*at)->next;
    if (*at) oldest = *at, *at = NULL;
    pthread_mutex_unlock(&artifact->lock);
    if (oldest) release(artifact, oldest);
    return made;
}

void free_calls(struct motet_artifact *artifact) {
    for (size_t i = 0; i < artifact->function_count; i++)
        while (artifact->functions[i].instances) {
            struct instance *instance = artifact->functions[i].instances;
            artifact->functions[i].instances = instance->next;
            release(artifact, instance);
        }
    for (int i = 0; i < KEPT_ARENAS; i++) free(artifact->arenas[i].memory);
}

/* -- calls ------------------------------------------------------------------------------------- */

struct call {
    struct motet_function *function;
    const motet_tensor *inputs, *results;
    size_t input_count, result_count, result;
    int64_t *extents; /* to write those of `result` to; null: run the function */
    struct instance *instance;
    struct zone zone;
    struct arena arena;
};

static void check_tensor(
    const struct motet_function *function, const char *what, size_t index, const struct tensor *tensor,
    const motet_tensor *given) {
    const motet_spec *spec = &tensor->spec;
    char shape[LONGEST_SHAPE], expected[LONGEST_SHAPE];
    if (!given->dtype || (given->rank && !given->extents))
        refuse(function, what, index, spec, "", "a null pointer", "a tensor");
    bool unsigned_integer = *spec->dtype == 'i' && (*given->dtype == 'u' || *given->dtype == 's');
    if (strcmp(given->dtype + unsigned_integer, spec->dtype)) 
        refuse(function, what, index, spec, "dtype ", given->dtype, spec->dtype);
    bool valid = given->rank == spec->rank;
    for (size_t axis = 0; axis < given->rank && axis < LARGEST_RANK; axis++)
        valid &= given->extents[axis] >= 0 && given->extents[axis] <= LARGEST_EXTENT;
    size_t rank = given->rank < LARGEST_RANK ? given->rank : LARGEST_RANK;
    if (!valid)
        refuse(function, what, index, spec, "shape ", show_shape(shape, rank, given->extents, NULL),
               show_shape(expected, spec->rank, spec->extents, spec->symbols));
}

/* Checks a tensor against the shape of this call, and its memory. */
static void check_memory(struct call *call, const char *what, size_t index, size_t number, const motet_tensor *given) {
    const struct motet_function *function = call->function;
    bool input = number < function->input_count;
    const struct tensor *tensor = input ? &function->inputs[index] : &function->results[index];
    const int64_t *extents = call->instance->extents[number];
    char shape[LONGEST_SHAPE], expected[LONGEST_SHAPE];
    if (memcmp(given->extents ? given->extents : extents, extents, tensor->spec.rank * sizeof *extents))
        refuse(function, what, index, &tensor->spec, "shape ", show_shape(shape, given->rank, given->extents, NULL),
               show_shape(expected, given->rank, extents, NULL));
    if (call->extents || !call->instance->bytes[number]) return;
    if (!given->data) refuse(function, what, index, &tensor->spec, "", "a null pointer", "memory");
    if ((uintptr_t)given->data % tensor->dtype->alignment)
        refuse(function, what, index, &tensor->spec, "", "unaligned memory", "memory aligned as its elements");
}

/* Refuses memory that is written and also belongs to another tensor. */
static void check_overlaps(struct call *call, const int64_t *addresses) {
    const struct motet_function *function = call->function;
    const int64_t *bytes = call->instance->bytes;
    size_t inputs = function->input_count;
    for (size_t result = 0; result < function->result_count; result++)
        for (size_t other = 0; other < inputs + result; other++) {
            size_t own = inputs + result;
            bool same = (int64_t)other == function->results[result].spec.destination;
            bool apart = !bytes[own] || !bytes[other] || addresses[own] + bytes[own] <= addresses[other]
                         || addresses[other] + bytes[other] <= addresses[own];
            if (!same && !apart)
                raise_error(MOTET_INVALID_CALL, "%s: result %zu shares memory with %s %zu; give memory of its own",
                            function->name, result, other < inputs ? "argument" : "result",
                            other < inputs ? other : other - inputs);
        }
}

/* See runtime/checks.py: texts of ONNX operators are a name in quotes after a word, and count negative indices from the
   end. */
static void raise_failure(const struct motet_function *function, size_t number, const int64_t *status) {
    const struct node *text = function->checks[number]->first;
    for (int64_t i = 1; text && i < status[0]; i++) text = text->next;
    const char *what = text && status[0] > 0 ? text->text : "a check failed", *quote = strchr(what, '"');
    bool named = quote && quote > what + 1 && quote[-1] == ' ' && strcspn(what, " .") == (size_t)(quote - what) - 1;
    char compared[96] = "";
    int64_t index = named && status[1] < 0 ? (int64_t)((uint64_t)status[1] - (uint64_t)status[2]) : status[1];
    if (status[2] >= 0)
        snprintf(compared, sizeof compared, ": index %lld is outside of an axis of extent %lld", (long long)index,
                 (long long)status[2]);
    raise_error(MOTET_INVALID_CALL, "%s: %s%s", function->name, what, compared);
}

static void run(struct call *call) {
    struct motet_function *function = call->function;
    struct instance *instance = call->instance;
    size_t tensors = function->input_count + function->result_count;
    int64_t *addresses = take(&call->zone, tensors + 2, sizeof *addresses); /* 0, tensors, the arena */
    for (size_t i = 0; i < function->input_count; i++) {
        check_memory(call, "argument", i, i, &call->inputs[i]);
        addresses[i + 1] = (int64_t)call->inputs[i].data;
    }
    for (size_t i = 0; i < function->result_count; i++) {
        int64_t home = function->results[i].spec.destination;
        motet_tensor given = call->results[i];
        if (home >= 0 && !given.data) given.data = call->inputs[home].data;
        check_tensor(function, "result", i, &function->results[i], &given);
        check_memory(call, "result", i, function->input_count + i, &given);
        if (home >= 0 && given.data != call->inputs[home].data)
            raise_error(MOTET_INVALID_CALL, "%s: result %zu: is written to argument %lld; expected its memory, or null",
                        function->name, i, (long long)home);
        addresses[function->input_count + i + 1] = (int64_t)given.data;
    }
    check_overlaps(call, addresses + 1);
    call->arena = take_arena(function->artifact, (size_t)instance->arena);
    addresses[tensors + 1] = (int64_t)call->arena.memory;
    int64_t *status = (int64_t *)((uintptr_t)call->arena.memory + (uintptr_t)instance->statuses);
    if (function->check_count) memset(status, 0, STATUS_BYTES * function->check_count);
    if (function->artifact->run(instance->program, addresses, NULL))
        raise_error(MOTET_OUT_OF_MEMORY, "out of memory: %lld bytes for each thread", (long long)function->scratch);
    for (size_t i = 0; i < function->check_count; i++)
        if (status[STATUS_BYTES / 8 * i]) raise_failure(function, i, status + STATUS_BYTES / 8 * i);
}

static void prepare_and_run(void *context) {
    struct call *call = context;
    struct motet_function *function = call->function;
    if (!function || (!call->inputs && call->input_count) || (!call->results && call->result_count))
        raise_error(MOTET_INVALID_ARGUMENT, "a null pointer given; expected a function, and an array of tensors");
    if (call->input_count != function->given_count)
        raise_error(MOTET_INVALID_CALL, "%s: %zu arguments given, %zu expected", function->name, call->input_count,
                    function->given_count);
    for (size_t i = 0; i < function->given_count; i++)
        check_tensor(function, "argument", i, &function->inputs[i], &call->inputs[i]);
    if (function->given_count < function->input_count)
        call->inputs = complete_inputs(&call->zone, function, call->inputs);
    int64_t *symbols = take(&call->zone, function->symbol_count, sizeof *symbols);
    for (size_t i = 0; i < function->symbol_count; i++)
        symbols[i] = call->inputs[function->symbols[i].input].extents[function->symbols[i].axis];
    call->instance = instance_for(function, symbols);
    if (!call->extents && call->result_count != function->result_count)
        raise_error(MOTET_INVALID_CALL, "%s: %zu results given, %zu expected", function->name, call->result_count,
                    function->result_count);
    if (!call->extents) {
        run(call);
        return;
    }
    for (size_t i = 0; i < function->input_count; i++) check_memory(call, "argument", i, i, &call->inputs[i]);
    if (call->result >= function->result_count)
        raise_error(MOTET_INVALID_ARGUMENT, "%s: result %zu; there are %zu", function->name, call->result,
                    function->result_count);
    memcpy(call->extents, call->instance->extents[function->input_count + call->result],
           function->results[call->result].spec.rank * sizeof *call->extents);
}

static int finish_call(struct call *call) {
    int status = protect(prepare_and_run, call);
    if (call->function) {
        give_arena(call->function->artifact, call->arena);
        release(call->function->artifact, call->instance);
    }
    free_zone(&call->zone);
    return status;
}

int motet_call(
    const motet_function *function, const motet_tensor *inputs, size_t input_count, const motet_tensor *results,
    size_t result_count) {
    return finish_call(&(struct call){
        .function = (struct motet_function *)function, .inputs = inputs, .input_count = input_count,
        .results = results, .result_count = result_count});
}

int motet_result_extents(
    const motet_function *function, const motet_tensor *inputs, size_t input_count, size_t result, int64_t *extents) {
    if (!extents) return finish_call(&(struct call){0});
    return finish_call(&(struct call){
        .function = (struct motet_function *)function, .inputs = inputs, .input_count = input_count,
        .result = result, .extents = extents});
}
