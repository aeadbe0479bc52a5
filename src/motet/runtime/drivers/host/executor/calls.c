/* The call of a compiled function from Python. A METH_FASTCALL entry checks its arrays' fields in place and hands
   unsuitable arguments to Python. */
#include "executor.h"

/* The data of `array` if it is an ndarray as `spec` says; otherwise null. */
static void *checked(PyObject *object, const struct spec *spec, const struct call *call) {
    const struct array *array = (const struct array *)object;
    if (array->type != call->array_type) return NULL;
    if (array->descriptor != spec->descriptor || array->rank != spec->rank) return NULL;
    if ((array->flags & spec->flags) != spec->flags) return NULL;
    for (uint64_t i = 0; i < (uint32_t)array->rank; i++)
        if (array->shape[i] != spec->shape[i]) return NULL;
    return array->data;
}

/* Whether `bytes` bytes at `data` overlap any of the first `count` arrays other than number `except`. */
static bool overlaps(const struct call *call, const uint64_t *table, void *data, uint64_t bytes, int64_t except,
                     uint64_t count) {
    uint64_t begin = (uint64_t)data;
    for (uint64_t i = 0; i < count; i++) {
        const struct spec *spec = &call->specs[i];
        uint64_t other = table[spec->external];
        if (begin < other + spec->bytes && other < begin + bytes && i != (uint64_t)except) return true;
    }
    return false;
}

/* One result, a new reference: the destination that was passed, the input it is written to, an array of its factory's
   making, or a new one. Null with an error set if *odd is false; if *odd is true, the call must go the long way. */
static PyObject *make_result(const struct call *call, uint64_t *table, PyObject *const *args, uint64_t number,
                             bool passed, bool *odd) {
    uint64_t place = call->inputs + number;
    const struct spec *spec = &call->specs[place];
    PyObject *object;
    void *data;
    *odd = true;
    if (passed) {
        object = args[place];
        data = checked(object, spec, call);
        if (!data || overlaps(call, table, data, spec->bytes, -1, place)) return NULL;
        Py_IncRef(object);
    } else if (spec->input >= 0) {
        object = args[spec->input];
        data = ((const struct array *)object)->data;
        if (overlaps(call, table, data, spec->bytes, spec->input, call->inputs)) return NULL;
        Py_IncRef(object);
    } else {
        if (spec->factory) {
            object = PyObject_CallNoArgs(spec->factory);
        } else {
            Py_IncRef(spec->descriptor);
            object = call->pyarray_empty(spec->rank, spec->shape, spec->descriptor, 0);
        }
        if (!object) {
            *odd = false;
            return NULL;
        }
        data = checked(object, spec, call);
        if (!data) {
            Py_DecRef(object);
            return NULL;
        }
    }
    table[spec->external] = (uint64_t)data;
    return object;
}

static void drop_all(PyObject **objects, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) Py_DecRef(objects[i]);
}

/* What the caller gets: None, the one result, or a tuple. Takes over the references. */
static PyObject *returned(const struct call *call, PyObject **objects) {
    uint64_t count = call->results;
    if (count == 1) return objects[0];
    if (!count) {
        Py_IncRef(call->none);
        return call->none;
    }
    PyObject *tuple = PyTuple_New((int64_t)count);
    if (!tuple) drop_all(objects, count);
    for (uint64_t i = 0; tuple && i < count; i++) PyTuple_SetItem(tuple, (int64_t)i, objects[i]);
    return tuple;
}

/* The first of the call's statuses, of STATUS_BYTES each, that record in its arena which checks of its kernels failed
   (motet/runtime/checks.py); they become zero. Null if the call has none. */
static char *clear_statuses(const struct call *call, uint64_t arena) {
    if (!call->statuses) return NULL;
    return __builtin_memset((char *)arena + call->status_offset, 0, call->statuses * STATUS_BYTES);
}

static bool any_failed(const struct call *call, const char *statuses) {
    for (uint64_t i = 0; statuses && i < call->statuses; i++)
        if (*(const uint64_t *)(statuses + i * STATUS_BYTES)) return true;
    return false;
}

/* Raises what the statuses say. */
static __attribute__((noinline, cold)) void raise_failed(const struct call *call, char *statuses) {
    PyObject *address = PyLong_FromVoidPtr(statuses);
    if (!address) return;
    PyObject_Vectorcall(call->failed, &address, 1, NULL);
    Py_DecRef(address);
}

/* Takes a free arena, whose bit in `arenas_free` is the result; 0 if there is none. */
static uint64_t take_arena(struct call *call) {
    for (;;) {
        uint64_t known = load(&call->arenas_free, RELAXED), bit = known & -known;
        if (!bit || swap(&call->arenas_free, &known, known ^ bit, ACQUIRE, RELAXED)) return bit;
    }
}

/* Runs the program and returns what the caller gets; null with an error set if *odd is false. If *odd is true, the call
   must go the long way. */
static PyObject *call_quickly(struct call *call, PyObject *const *args, bool passed, bool *odd) {
    uint64_t *table = (uint64_t *)__builtin_alloca((call->externals + 1) * sizeof *table) + 1;
    PyObject **objects = __builtin_alloca(call->results * sizeof *objects);
    table[-1] = 0;
    *odd = true;
    for (uint64_t i = 0; i < call->inputs; i++) {
        void *data = checked(args[i], &call->specs[i], call);
        if (!data) return NULL;
        table[call->specs[i].external] = (uint64_t)data;
    }
    for (uint64_t i = 0; i < call->results; i++) {
        objects[i] = make_result(call, table, args, i, passed, odd);
        if (!objects[i]) {
            drop_all(objects, i);
            return NULL;
        }
    }
    uint64_t taken = 0;
    char *statuses = NULL;
    if (call->arena_external >= 0) {
        taken = take_arena(call);
        if (!taken) {
            drop_all(objects, call->results);
            return NULL;
        }
        uint64_t arena = call->arenas[__builtin_ctzll(taken)];
        table[call->arena_external] = arena;
        statuses = clear_statuses(call, arena);
    }
    *odd = false;
    void *state = call->release ? PyEval_SaveThread() : NULL;
    int status = motet_run(call->program, table, NULL);
    if (state) PyEval_RestoreThread(state);
    bool failed = any_failed(call, statuses);
    if (failed) raise_failed(call, statuses);
    if (taken) __atomic_fetch_or(&call->arenas_free, taken, __ATOMIC_RELEASE);
    if (!failed && !status) return returned(call, objects);
    drop_all(objects, call->results);
    return failed ? NULL : PyObject_CallNoArgs(call->failure);
}

/* The method: METH_FASTCALL | METH_KEYWORDS. `self` is a tuple whose first item is the address of the call. */
PyObject *motet_call(PyObject *self, PyObject *const *args, uint64_t given, PyObject *names) {
    struct call *call = PyLong_AsVoidPtr(PyTuple_GetItem(self, 0));
    const struct program *program = call->program;
    bool exact = given == call->inputs;
    bool fits = exact || (call->destinations && given == call->inputs + call->results);
    if (!names && fits && (!program->parallel || load(&program->pool->started, RELAXED))) {
        bool odd;
        PyObject *answer = call_quickly(call, args, !exact, &odd);
        if (!odd) return answer;
    }
    return PyObject_Vectorcall(call->fallback, args, given, names);
}
