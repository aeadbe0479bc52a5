/* Reads the manifest into functions, and checks it like artifact/validation.py: every index, reference and expression.
   Sizes that depend on a call's extents are checked when they are known. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "internal.h"

enum { DEEPEST = 64, MOST_BUFFERS = 1 << 12 };

static const struct dtype DTYPES[] = {MOTET_DTYPES};

static const struct dtype *find_dtype(const char *name, const char *where) {
    for (size_t i = 0; i < sizeof DTYPES / sizeof *DTYPES; i++)
        if (!strcmp(DTYPES[i].name, name)) return &DTYPES[i];
    damaged("%s: dtype '%s', which is not known", where, name);
}

/* -- expressions ------------------------------------------------------------------------------- */

static struct expression *read_expression(
    struct motet_function *function, const struct node *node, int depth, const char *where) {
    static const char *const names[] = {"+", "-", "*", "//", "ceildiv", "max", "min"};
    struct expression *own = take(&function->artifact->zone, 1, sizeof *own);
    if (node->kind == INTEGER) {
        if (node->integer >= LIMIT || node->integer <= -LIMIT || (node->integer < 0 && !depth))
            damaged("%s: %lld is out of range", where, (long long)node->integer);
        *own = (struct expression){'#', node->integer, NULL, NULL};
        return own;
    }
    if (node->kind == STRING) {
        for (size_t i = 0; i < function->symbol_count; i++)
            if (!strcmp(function->symbols[i].name, node->text)) {
                *own = (struct expression){'$', (int64_t)i, NULL, NULL};
                return own;
            }
        damaged("%s: symbol '%s', which the function does not have", where, node->text);
    }
    if (node->kind != LIST || node->count != 3 || node->first->kind != STRING || depth >= DEEPEST)
        damaged("%s: no valid expression; expected [operator, left, right]", where);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], node->first->text)) own->kind = "+-*/%Mm"[i];
    if (!own->kind) damaged("%s: operator '%s', which is not known", where, node->first->text);
    own->left = read_expression(function, node->first->next, depth + 1, where);
    own->right = read_expression(function, node->first->next->next, depth + 1, where);
    return own;
}

int64_t evaluate(const struct expression *expression, const int64_t *symbols) {
    if (expression->kind == '#') return expression->number;
    if (expression->kind == '$') return symbols[expression->number];
    int64_t left = evaluate(expression->left, symbols), right = evaluate(expression->right, symbols), value = 0;
    bool over = false;
    switch (expression->kind) {
    case '+': over = __builtin_add_overflow(left, right, &value); break;
    case '-': over = __builtin_sub_overflow(left, right, &value); break;
    case '*': over = __builtin_mul_overflow(left, right, &value); break;
    case 'M': value = left > right ? left : right; break;
    case 'm': value = left < right ? left : right; break;
    default:
        if (!right) raise_error(MOTET_INVALID_CALL, "division by zero in a size");
        value = left / right; /* towards zero: corrected to the floor or the ceiling */
        if (left % right) value += expression->kind == '/' ? -((left < 0) != (right < 0)) : (left < 0) == (right < 0);
    }
    if (over || value <= -LIMIT || value >= LIMIT) raise_error(MOTET_INVALID_CALL, "a size is too large");
    return value;
}

static struct expression **read_expressions(
    struct motet_function *function, struct node *list, size_t *count, const char *where) {
    *count = list ? list->count : 0;
    struct expression **expressions = take(&function->artifact->zone, *count, sizeof *expressions);
    struct expression **next = expressions;
    for (struct node *node = list ? list->first : NULL; node; node = node->next)
        *next++ = read_expression(function, node, 0, where);
    return expressions;
}

static struct expression *expression_of(
    struct motet_function *function, struct node *object, const char *name, int64_t other, const char *where) {
    struct node number = {.kind = INTEGER, .integer = other};
    for (struct node *node = object->first; node; node = node->next)
        if (!strcmp(node->name, name)) {
            node->used = true;
            return read_expression(function, node, 0, where);
        }
    return read_expression(function, &number, 0, where);
}

/* -- signatures -------------------------------------------------------------------------------- */

static void read_tensor(struct motet_function *function, struct node *node, struct tensor *tensor, const char *where) {
    struct zone *zone = &function->artifact->zone;
    motet_spec *spec = &tensor->spec;
    spec->name = string(node, "name", NULL, where);
    tensor->dtype = find_dtype(string(node, "dtype", NULL, where), where);
    spec->dtype = tensor->dtype->name;
    spec->element_size = tensor->dtype->size;
    spec->destination = integer(node, "destination", -1, 0 - !field(node, "destination", INTEGER, where),
                                (int64_t)function->input_count - 1, where);
    spec->state = string(node, "state", "", where);
    if (!*spec->state) spec->state = NULL;
    struct node *shape = needed(node, "shape", LIST, where), *value = field(node, "value", OBJECT, where);
    if (shape->count > LARGEST_RANK) damaged("%s: %zu axes; at most %d expected", where, shape->count, LARGEST_RANK);
    tensor->extents = read_expressions(function, shape, &spec->rank, where);
    int64_t *extents = take(zone, spec->rank, sizeof *extents);
    const char **symbols = take(zone, spec->rank, sizeof *symbols);
    for (size_t axis = 0; axis < spec->rank; axis++) {
        const struct expression *extent = tensor->extents[axis];
        extents[axis] = extent->kind == '#' ? extent->number : -1;
        if (extent->kind == '$') symbols[axis] = function->symbols[extent->number].name;
    }
    spec->extents = extents, spec->symbols = symbols;
    if (value) {
        tensor->value_function = string(value, "function", NULL, where);
        tensor->operator = string(value, "operator", "", where);
        tensor->value_index = (size_t)integer(value, "index", 0, 0, LIMIT, where);
        tensor->value_result = (size_t)integer(value, "result", 0, 0, LIMIT, where);
        no_others(value, "", where);
    }
    no_others(node, "strided memory", where);
}

static struct tensor *read_tensors(struct motet_function *function, struct node *list, const char *where) {
    struct tensor *tensors = take(&function->artifact->zone, list->count, sizeof *tensors), *next = tensors;
    for (struct node *node = list->first; node; node = node->next) read_tensor(function, node, next++, where);
    return tensors;
}

static void read_symbols(struct motet_function *function, struct node *list, const char *where) {
    function->symbol_count = list ? list->count : 0;
    function->symbols = take(&function->artifact->zone, function->symbol_count, sizeof *function->symbols);
    struct symbol *symbol = function->symbols;
    for (struct node *node = list ? list->first : NULL; node; node = node->next, symbol++) {
        symbol->name = string(node, "name", NULL, where);
        symbol->input = (size_t)integer(node, "input", -1, 0, (int64_t)function->input_count - 1, where);
        symbol->axis = (size_t)integer(node, "axis", -1, 0, LARGEST_RANK, where);
        no_others(node, "", where);
        for (const struct symbol *other = function->symbols; other < symbol; other++)
            if (!strcmp(other->name, symbol->name)) damaged("%s: symbol '%s' is there twice", where, symbol->name);
    }
}

static void read_constraints(struct motet_function *function, struct node *list, const char *where) {
    function->constraint_count = list ? list->count : 0;
    function->constraints = take(&function->artifact->zone, function->constraint_count, sizeof *function->constraints);
    struct constraint *constraint = function->constraints;
    for (struct node *node = list ? list->first : NULL; node; node = node->next, constraint++) {
        constraint->left = expression_of(function, node, "left", 0, where);
        constraint->right = expression_of(function, node, "right", 0, where);
        constraint->text = string(node, "text", "extents that must be equal", where);
        static const char *const relations[] = {"equal", "at-most", "multiple", "stretch", "broadcast", "true"};
        const char *relation = string(node, "relation", "equal", where);
        for (int i = 0; i < 6; i++)
            if (!strcmp(relation, relations[i])) constraint->relation = *relations[i];
        if (!constraint->relation) unsupported("%s: relation '%s', which this version does not know", where, relation);
        no_others(node, "", where);
    }
}

static void read_signature(struct motet_function *function, struct node *node) {
    function->name = string(node, "name", NULL, "a function");
    const char *where = print(&function->artifact->zone, "function '%s'", function->name);
    struct node *inputs = needed(node, "inputs", LIST, where), *results = needed(node, "results", LIST, where);
    function->input_count = inputs->count;
    function->result_count = results->count;
    read_symbols(function, field(node, "symbols", LIST, where), where);
    function->inputs = read_tensors(function, inputs, where);
    function->results = read_tensors(function, results, where);
    for (size_t i = 0; i < function->symbol_count; i++) {
        const struct symbol *symbol = &function->symbols[i];
        const motet_spec *spec = &function->inputs[symbol->input].spec;
        if (symbol->axis >= spec->rank || spec->symbols[symbol->axis] != symbol->name)
            damaged("%s: symbol '%s': not axis %zu of input %zu", where, symbol->name, symbol->axis, symbol->input);
    }
    for (size_t i = 0; i < inputs->count; i++)
        if (function->inputs[i].spec.destination >= 0) damaged("%s: input %zu has a destination", where, i);
        else function->given_count += !function->inputs[i].value_function;
    for (size_t i = 0; i < results->count; i++) {
        int64_t input = function->results[i].spec.destination;
        if (input >= 0 && function->inputs[input].dtype != function->results[i].dtype)
            damaged("%s: result %zu: dtype differs from its destination's", where, i);
    }
    read_constraints(function, field(node, "constraints", LIST, where), where);
    no_others(node, "", where);
}

/* -- schedules --------------------------------------------------------------------------------- */

static void read_buffers(struct motet_function *function, struct node *list, const char *where) {
    function->buffer_count = list->count;
    function->buffers = take(&function->artifact->zone, list->count, sizeof *function->buffers);
    struct buffer *buffer = function->buffers;
    for (struct node *node = list->first; node; node = node->next, buffer++) {
        const char *kind = string(node, "kind", NULL, where);
        size_t counts[] = {function->input_count, function->result_count, function->artifact->parameter_count, 1,
                           function->check_count};
        static const char *const kinds[] = {"input", "result", "parameter", "arena", "status"};
        for (int i = 0; i < 5; i++)
            if (!strcmp(kind, kinds[i])) {
                buffer->kind = *kinds[i];
                int64_t most = i == 3 ? LIMIT : (int64_t)counts[i] - 1; /* an arena's index says nothing */
                buffer->index = (size_t)integer(node, "index", 0, 0, most, where);
            }
        if (!buffer->kind) damaged("%s: a buffer of kind '%s'", where, kind);
        buffer->bytes = expression_of(function, node, "bytes", 0, where);
        buffer->offset = expression_of(function, node, "offset", 0, where);
        bool fixed = buffer->bytes->kind == '#' && buffer->bytes->number == STATUS_BYTES
                     && buffer->offset->kind == '#' && !buffer->offset->number;
        if (buffer->kind == 's' && !fixed) damaged("%s: a status; expected %d bytes at 0", where, STATUS_BYTES);
        no_others(node, "shape dtype", where);
    }
}

static void read_command(
    struct motet_function *function, struct node *node, struct command *command, const char *where) {
    struct motet_artifact *artifact = function->artifact;
    const char *op = string(node, "op", NULL, where);
    struct node *buffers = needed(node, "buffers", LIST, where);
    command->copies = !strcmp(op, "copy");
    command->buffer_count = buffers->count;
    if ((command->copies && buffers->count != 2) || buffers->count > MOST_BUFFERS)
        damaged("%s: a command with %zu buffers", where, buffers->count);
    command->buffers = take(&artifact->zone, buffers->count, sizeof *command->buffers);
    size_t *next = command->buffers;
    for (struct node *buffer = buffers->first; buffer; buffer = buffer->next) {
        of_kind(buffer, INTEGER, where);
        if (buffer->integer < 0 || (size_t)buffer->integer >= function->buffer_count)
            damaged("%s: buffer %lld; there are %zu", where, (long long)buffer->integer, function->buffer_count);
        *next++ = (size_t)buffer->integer;
    }
    command->tasks = expression_of(function, node, "tasks", 1, where);
    command->sizes = read_expressions(function, field(node, "sizes", LIST, where), &command->size_count, where);
    command->kernel = string(node, "kernel", "", where);
    if (!command->copies) {
        if (strcmp(op, "dispatch")) unsupported("%s: command '%s', which this version does not know", where, op);
        command->code = find_code(&artifact->code, command->kernel);
        if (!command->code) damaged("%s: kernel '%s': no object of this target has it", where, command->kernel);
    }
    /* Commands run in the order of the list, which is later than all that these fields ask for. */
    no_others(node, "after reads stream waits seconds source", where);
}

static void read_schedule(struct motet_function *function, struct node *node, const char *where) {
    struct node *checks = field(node, "checks", LIST, where), *commands = needed(node, "commands", LIST, where);
    function->check_count = checks ? checks->count : 0;
    function->checks = take(&function->artifact->zone, function->check_count, sizeof *function->checks);
    size_t number = 0;
    for (struct node *texts = checks ? checks->first : NULL; texts; texts = texts->next) {
        of_kind(texts, LIST, where);
        for (struct node *text = texts->first; text; text = text->next) of_kind(text, STRING, where);
        function->checks[number++] = texts;
    }
    function->arena = expression_of(function, node, "arena", 0, where);
    function->scratch = integer(node, "scratch", 0, 0, LIMIT - 1, where);
    read_buffers(function, needed(node, "buffers", LIST, where), where);
    function->command_count = commands->count;
    function->commands = take(&function->artifact->zone, commands->count, sizeof *function->commands);
    struct command *next = function->commands;
    for (struct node *command = commands->first; command; command = command->next)
        read_command(function, command, next++, where);
    no_others(node, "least serial trials tried_on", where);
}

/* -- parameters -------------------------------------------------------------------------------- */

/* A safetensors file: the length of a header in JSON, the header, the data. */
static void read_parameter_file(struct motet_artifact *artifact, struct node *list, const char *name) {
    struct bytes file = member(&artifact->file, name);
    uint64_t length;
    memcpy(&length, slice(file, 0, 8, name).data, 8);
    struct node *header = parse_json(&artifact->zone, slice(file, 8, length, name), name), *at = NULL;
    of_kind(header, OBJECT, name);
    struct bytes data = {file.data + 8 + length, file.size - 8 - length};
    struct parameter *parameter = artifact->parameters;
    for (struct node *node = list->first; node; node = node->next, parameter++) {
        const char *key = string(node, "key", NULL, "a parameter");
        const char *where = print(&artifact->zone, "parameter '%s'", key);
        const struct dtype *dtype = find_dtype(string(node, "dtype", NULL, where), where);
        struct node *shape = needed(node, "shape", LIST, where);
        no_others(node, "", where);
        /* Entries are in the order of the list, with paddings between them: the next is found at once. */
        struct node *entry = at ? at->next : header->first;
        for (size_t passed = 0; passed <= header->count; passed++, entry = entry->next) {
            if (!entry) entry = header->first;
            if (!entry || !strcmp(entry->name, key)) break;
        }
        if (!entry || strcmp(entry->name, key)) damaged("%s: not in '%s'", where, name);
        at = entry;
        struct node *stored = needed(entry, "shape", LIST, where), *extent = shape->first;
        struct node *offsets = needed(entry, "data_offsets", LIST, where), *begin = offsets->first;
        bool same = dtype->stored && !strcmp(string(entry, "dtype", NULL, where), dtype->stored);
        int64_t bytes = (int64_t)dtype->size;
        for (struct node *other = stored->first; same && other && extent; other = other->next, extent = extent->next)
            same = extent->kind == INTEGER && other->kind == INTEGER && extent->integer == other->integer
                   && extent->integer >= 0 && !__builtin_mul_overflow(bytes, extent->integer, &bytes);
        bool pair = offsets->count == 2 && begin->kind == INTEGER && begin->next->kind == INTEGER;
        pair = pair && begin->integer >= 0 && begin->next->integer >= 0;
        if (!same || !pair || stored->count != shape->count || begin->next->integer - begin->integer != bytes)
            damaged("%s: another shape or dtype is stored", where);
        *parameter = (struct parameter){slice(data, (uint64_t)begin->integer, (uint64_t)bytes, where).data, bytes};
        if ((uintptr_t)parameter->data % ALIGNMENT) damaged("%s: not aligned to %d bytes in the file", where, ALIGNMENT);
    }
}

/* -- the whole --------------------------------------------------------------------------------- */

/* The first variant for this processor, as the compiler preferred them. */
static struct node *choose_variant(struct motet_artifact *artifact, struct node *variants) {
    const char *reasons = "";
    for (struct node *variant = variants->first; variant; variant = variant->next) {
        const char *family = string(variant, "family", NULL, "a variant");
        const char *target = string(variant, "target", NULL, family);
        struct node *features = needed(variant, "features", LIST, target);
        const char *reason = strcmp(family, "host") && strcmp(family, "cpu") ? "for another device"
            : processor_obstacle(&artifact->zone, string(variant, "triple", NULL, target), features);
        if (!reason) return variant;
        reasons = print(&artifact->zone, "%s%s%s: %s", reasons, *reasons ? "; " : "", target, reason);
    }
    unsupported("no code for this machine: %s", *reasons ? reasons : "it has none at all");
}

static void load_code(struct motet_artifact *artifact, struct node *variant, const char *where) {
    struct node *list = needed(variant, "objects", LIST, where);
    struct bytes *objects = take(&artifact->zone, list->count, sizeof *objects);
    const char **names = take(&artifact->zone, list->count, sizeof *names);
    size_t count = 0;
    for (struct node *node = list->first; node; node = node->next, count++) {
        of_kind(node, STRING, where);
        names[count] = node->text;
        objects[count] = member(&artifact->file, node->text);
    }
    load_objects(&artifact->code, objects, names, count);
}

void read_manifest(struct motet_artifact *artifact) {
    struct node *manifest = artifact->file.manifest;
    const char *where = "manifest.json";
    struct node *devices = field(manifest, "devices", LIST, where), *plans = field(manifest, "plans", OBJECT, where);
    struct node *parameters = needed(manifest, "parameters", LIST, where);
    struct node *functions = needed(manifest, "functions", LIST, where);
    if ((devices && devices->count) || (plans && plans->count))
        unsupported("a program whose parts are placed on named devices, which needs Motet's runtime");
    struct node *variant = choose_variant(artifact, needed(manifest, "variants", LIST, where));
    const char *target = string(variant, "target", NULL, where);
    struct node *schedules = needed(variant, "schedules", OBJECT, target);
    load_code(artifact, variant, target);
    no_others(variant, "kernels", target);
    artifact->parameter_count = parameters->count;
    artifact->parameters = take(&artifact->zone, parameters->count, sizeof *artifact->parameters);
    const char *external = string(manifest, "external_parameters", "parameters.safetensors", where);
    if (parameters->count) read_parameter_file(artifact, parameters, external);
    artifact->functions = take(&artifact->zone, functions->count, sizeof *artifact->functions);
    for (struct node *node = functions->first; node; node = node->next) {
        struct motet_function *function = &artifact->functions[artifact->function_count];
        function->artifact = artifact;
        read_signature(function, node);
        if (motet_find_function(artifact, function->name)) damaged("function '%s' is there twice", function->name);
        read_schedule(function, needed(schedules, function->name, OBJECT, target), function->name);
        artifact->function_count++;
    }
    for (size_t i = 0; i < artifact->function_count; i++) connect_values(&artifact->functions[i]);
    no_others(manifest, "default_device links regions", where);
}
