/* What the parts of the host's executor share: types, the machine's instructions and numbers, atomics, imports. */
#ifndef EXECUTOR_H
#define EXECUTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Runs the tasks [begin, end). */
typedef void kernel(void **buffers, const uint64_t *sizes, uint64_t begin, uint64_t end, void *scratch);
typedef struct _object PyObject;
typedef PyObject *array_maker(int rank, const int64_t *shape, PyObject *descriptor, int fortran);

struct reference {
    int64_t external; /* or -1 */
    uint64_t offset;
};

#include "layout.h" /* written by ../layout.py */

#if defined __x86_64__
enum { SYS_GETTID = 186, SYS_FUTEX = 202 };
#else
enum { SYS_GETTID = 178, SYS_FUTEX = 98 };
#endif

/* What a spinning thread does. */
static inline void pause(void) {
#if defined __aarch64__
    __asm__ volatile("isb");
#else
    __asm__ volatile("pause");
#endif
}

/* The C library. */
long syscall(long number, ...);
int sched_yield(void);
int clock_gettime(int clock, uint64_t time[2]);
void *aligned_alloc(size_t alignment, size_t size);
void free(void *memory);
int madvise(void *memory, size_t size, int advice);

/* The interpreter, which programs in C do not have. */
#pragma weak PyTuple_GetItem
#pragma weak PyTuple_New
#pragma weak PyTuple_SetItem
#pragma weak PyLong_AsVoidPtr
#pragma weak PyLong_FromVoidPtr
#pragma weak PyEval_SaveThread
#pragma weak PyEval_RestoreThread
#pragma weak PyObject_Vectorcall
#pragma weak PyObject_CallNoArgs
#pragma weak Py_IncRef
#pragma weak Py_DecRef
PyObject *PyTuple_GetItem(PyObject *tuple, int64_t index);
PyObject *PyTuple_New(int64_t size);
int PyTuple_SetItem(PyObject *tuple, int64_t index, PyObject *item);
void *PyLong_AsVoidPtr(PyObject *number);
PyObject *PyLong_FromVoidPtr(void *address);
void *PyEval_SaveThread(void);
void PyEval_RestoreThread(void *state);
PyObject *PyObject_Vectorcall(PyObject *callable, PyObject *const *args, size_t count, PyObject *names);
PyObject *PyObject_CallNoArgs(PyObject *callable);
void Py_IncRef(PyObject *object);
void Py_DecRef(PyObject *object);

#define load(address, order) __atomic_load_n(address, __ATOMIC_##order)
#define store(address, value, order) __atomic_store_n(address, value, __ATOMIC_##order)
/* Whether *address was *expected, and is now `value`; otherwise *expected becomes what it was. */
#define swap(address, expected, value, success, failure) \
    __atomic_compare_exchange_n(address, expected, value, false, __ATOMIC_##success, __ATOMIC_##failure)

static inline uint64_t min(uint64_t a, uint64_t b) { return a < b ? a : b; }

#endif
