/* What the library's files share. Functions that cannot do their work raise: they do not return, and `protect`, which
   every function of the interface that can fail is run by, returns the status. */
#ifndef MOTET_INTERNAL_H
#define MOTET_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdnoreturn.h>

#include "constants.h" /* written by build.py: the executor's layout, element types, the format's version */
#include "motet.h"

/* -- base.c: errors and memory -- */

int protect(void (*body)(void *), void *context);
noreturn void raise_error(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
noreturn void raise_again(int status); /* with the text of the error that `protect` returned */
#define damaged(...) raise_error(MOTET_INVALID_ARTIFACT, __VA_ARGS__)
#define unsupported(...) raise_error(MOTET_UNSUPPORTED, __VA_ARGS__)

/* Memory that is freed as a whole. */
struct zone {
    struct block *blocks;
};
void *take(struct zone *zone, size_t count, size_t size); /* zeroed, aligned to 16 bytes */
const char *print(struct zone *zone, const char *format, ...) __attribute__((format(printf, 2, 3)));
void free_zone(struct zone *zone);
void *map_pages(size_t size);
static inline int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

struct bytes {
    const uint8_t *data;
    size_t size;
};
/* Bytes [offset, offset + size) of `all`; raises, naming `what`, if they are not there. */
struct bytes slice(struct bytes all, uint64_t offset, uint64_t size, const char *what);

/* -- json.c -- */

enum kind { NOTHING, BOOLEAN, INTEGER, REAL, STRING, LIST, OBJECT };
struct node {
    enum kind kind;
    bool used;            /* a field that was asked for */
    int64_t integer;      /* of an INTEGER */
    size_t count;         /* of a LIST or an OBJECT */
    const char *name;     /* of a field */
    const char *text;     /* of a STRING */
    struct node *first, *next;
    size_t named, begin, end; /* where its name, and its text, is */
};
struct node *parse_json(struct zone *zone, struct bytes text, const char *where);
struct node *field(struct node *object, const char *name, enum kind kind, const char *where); /* null: it has none */
struct node *needed(struct node *object, const char *name, enum kind kind, const char *where);
int64_t integer(struct node *object, const char *name, int64_t other, int64_t least, int64_t most, const char *where);
const char *string(struct node *object, const char *name, const char *other, const char *where);
void of_kind(const struct node *node, enum kind kind, const char *where);
void no_others(const struct node *object, const char *informative, const char *where); /* raises for unknown fields */

/* -- archive.c -- */

struct artifact_file {
    struct zone *zone;
    struct bytes data;
    const char *name, *folder;   /* folder: null for memory */
    struct bytes external;       /* the mapped file of parameters */
    struct node *manifest;
    struct stored *stored;
    size_t count;
};
struct bytes map_file(const char *path);
void open_archive(struct artifact_file *file);
struct bytes member(struct artifact_file *file, const char *name); /* checked against its hash */

/* -- manifest.c -- */

enum { LARGEST_RANK = 64, ALIGNMENT = 64 }; /* of tensors in their memory, in bytes */
#define LIMIT ((int64_t)1 << 62)
#define LARGEST_EXTENT ((int64_t)1 << 48)

struct dtype {
    const char *name;
    size_t size, alignment;
    const char *stored; /* its name in files of parameters, or null */
};
struct expression {
    char kind; /* '#': the number; '$': the symbol number; otherwise the operator, '%' for ceildiv, 'M' max, 'm' min */
    int64_t number;
    struct expression *left, *right;
};
int64_t evaluate(const struct expression *expression, const int64_t *symbols);

struct tensor {
    motet_spec spec;
    const struct dtype *dtype;
    struct expression **extents;
    const char *value_function, *operator; /* of an input that represents a value: what computes it, and what for … */
    size_t value_result, value_index;      /* … as which result, or, if that is 0, which element of the first */
    struct motet_function *values;
};
struct symbol {
    const char *name;
    size_t input, axis;
};
struct constraint {
    struct expression *left, *right;
    char relation; /* the first letter */
    const char *text;
};
struct buffer {
    char kind; /* the first letter: input, result, parameter, arena, status */
    size_t index;
    struct expression *bytes, *offset;
};
struct command {
    bool copies;
    size_t buffer_count, size_count;
    size_t *buffers;
    const char *kernel;
    void *code;
    struct expression *tasks, **sizes;
};
struct motet_function {
    struct motet_artifact *artifact;
    const char *name;
    bool hidden;        /* it computes values for others */
    size_t given_count; /* inputs that callers give: those without a value */
    size_t input_count, result_count, symbol_count, constraint_count, buffer_count, command_count, check_count;
    struct tensor *inputs, *results;
    struct symbol *symbols;
    struct constraint *constraints;
    struct buffer *buffers;
    struct command *commands;
    struct node **checks; /* lists of texts */
    struct expression *arena;
    int64_t scratch;
    struct instance *instances; /* of the extents of the last calls; see calls.c */
};

struct parameter {
    const uint8_t *data;
    int64_t bytes;
};
/* Reads functions, with the code for this processor. */
void read_manifest(struct motet_artifact *artifact);

/* -- values.c -- */

void connect_values(struct motet_function *function);
/* The inputs of a call with those that represent values. */
const motet_tensor *complete_inputs(
    struct zone *zone, const struct motet_function *function, const motet_tensor *given);

/* -- loader.c -- */

struct code {
    uint8_t *base;
    size_t size;
    struct zone zone;
    size_t count;
    struct global *globals;
};
void load_objects(struct code *code, const struct bytes *objects, const char *const *names, size_t count);
void *find_code(const struct code *code, const char *name); /* null: there is none */

/* -- host.c -- */

/* Why this processor cannot run code of `triple` with `features`, a list; null if it can. */
const char *processor_obstacle(struct zone *zone, const char *triple, const struct node *features);
void start_threads(struct motet_artifact *artifact, int threads);
void stop_threads(struct motet_artifact *artifact);

struct arena {
    void *memory;
    size_t size;
};
struct arena take_arena(struct motet_artifact *artifact, size_t size);
void give_arena(struct motet_artifact *artifact, struct arena given);

/* -- calls.c -- */

enum { KEPT_ARENAS = 64 };
struct motet_artifact {
    struct zone zone;
    struct artifact_file file;
    size_t function_count, parameter_count;
    struct motet_function *functions;
    struct parameter *parameters;
    struct code executor, code;
    int (*run)(void *program, int64_t *block, int64_t *times);
    struct workers *workers;
    pthread_mutex_t lock; /* of functions' instances, and of arenas */
    struct arena arenas[KEPT_ARENAS]; /* that no call uses */
};
void free_calls(struct motet_artifact *artifact);

#endif
