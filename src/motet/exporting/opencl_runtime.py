"""The C that every function exported for OpenCL has, after its own tables (`opencl_source.py`): it builds the programs
in a caller's context, and enqueues the commands on a caller's queue. NAME stands for the function's name.

OpenCL's headers are used where the compiler finds them; the declarations are enough otherwise.
"""

# The types of the interface.
TYPES = """
#if defined(__has_include) && !defined(MOTET_NO_OPENCL_HEADERS)
#if __has_include(<CL/cl.h>)
#define CL_TARGET_OPENCL_VERSION 210
#include <CL/cl.h>
#define MOTET_HAS_OPENCL_HEADERS
#endif
#endif
#ifndef MOTET_HAS_OPENCL_HEADERS
typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef struct _cl_context *cl_context;
typedef struct _cl_device_id *cl_device_id;
typedef struct _cl_command_queue *cl_command_queue;
typedef struct _cl_event *cl_event;
#endif
#ifndef MOTET_OPENCL_ARGUMENT
#define MOTET_OPENCL_ARGUMENT
/* The kind of an argument's memory is what the caller says: no platform can tell it from the handle. MOTET_USM is
   unified shared memory of any kind: host, device or shared. `handle` is the cl_mem, or the address. */
typedef enum { MOTET_CL_MEM, MOTET_USM, MOTET_SVM } motet_opencl_kind;
typedef struct { motet_opencl_kind kind; void *handle; } motet_opencl_argument;
#endif
"""

DECLARATIONS = """
#ifndef MOTET_HAS_OPENCL_HEADERS
typedef struct _cl_platform_id *cl_platform_id;
typedef struct _cl_program *cl_program;
typedef struct _cl_kernel *cl_kernel;
typedef struct _cl_mem *cl_mem;
extern void *clSVMAlloc(cl_context, uint64_t, size_t, cl_uint);
extern void clSVMFree(cl_context, void *);
extern cl_int clRetainContext(cl_context), clReleaseContext(cl_context);
extern cl_int clGetDeviceInfo(cl_device_id, cl_uint, size_t, void *, size_t *);
extern cl_program clCreateProgramWithIL(cl_context, const void *, size_t, cl_int *);
extern cl_program clCreateProgramWithSource(cl_context, cl_uint, const char **, const size_t *, cl_int *);
extern cl_int clBuildProgram(cl_program, cl_uint, const cl_device_id *, const char *, void *, void *);
extern cl_int clReleaseProgram(cl_program), clReleaseKernel(cl_kernel), clReleaseMemObject(cl_mem);
extern cl_kernel clCreateKernel(cl_program, const char *, cl_int *);
extern cl_int clSetKernelArg(cl_kernel, cl_uint, size_t, const void *);
extern cl_int clSetKernelArgSVMPointer(cl_kernel, cl_uint, const void *);
extern cl_mem clCreateSubBuffer(cl_mem, uint64_t, cl_uint, const void *, cl_int *);
extern cl_int clEnqueueNDRangeKernel(cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *,
                                     const size_t *, cl_uint, const cl_event *, cl_event *);
extern cl_int clEnqueueSVMMemcpy(cl_command_queue, cl_uint, void *, const void *, size_t, cl_uint, const cl_event *,
                                 cl_event *);
extern cl_int clEnqueueSVMMemFill(cl_command_queue, void *, const void *, size_t, size_t, cl_uint, const cl_event *,
                                  cl_event *);
extern cl_int clEnqueueMarkerWithWaitList(cl_command_queue, cl_uint, const cl_event *, cl_event *);
extern cl_int clFlush(cl_command_queue), clFinish(cl_command_queue);
extern cl_int clRetainEvent(cl_event), clReleaseEvent(cl_event), clWaitForEvents(cl_uint, const cl_event *);
extern cl_command_queue clCreateCommandQueueWithProperties(cl_context, cl_device_id, const uint64_t *, cl_int *);
extern cl_int clReleaseCommandQueue(cl_command_queue);
extern void *clGetExtensionFunctionAddressForPlatform(cl_platform_id, const char *);
#endif
/* A part of an external: an argument, the arena, the constants or the statuses. */
typedef struct { int external; size_t offset, bytes; } motet_part;
/* `kernel` is null for a copy; the others are the first and the number of entries in the tables. */
typedef struct {
    const char *kernel;
    int parts, part_count, sizes, size_count, after, after_count;
    int64_t tasks;
    int last; /* no command waits for it */
} motet_command;
"""

BODY = r"""
struct NAME_program {
    cl_context context;
    cl_program programs[NAME_PROGRAMS + 1];
    cl_kernel kernels[NAME_COMMANDS + 1];
    cl_int (*set_usm)(cl_kernel, cl_uint, const void *);
    unsigned char *arena, *constants, *scratch;
    size_t items;
    cl_event last; /* of the call that used the arena before */
    int64_t told[NAME_STATUS_BYTES / 8 + 1];
};

static const char copy_source[] =
    "kernel void motet_copy(global const uchar *source, global uchar *target, long size) {"
    "  long n = get_global_size(0), w = get_global_id(0);"
    "  for (long i = w * size / n; i < (w + 1) * size / n; i++) target[i] = source[i];"
    "}";

static cl_int build(NAME_program *made, cl_device_id device, int number, const void *code, size_t size, int is_il) {
    uint64_t rounded = 0;
    cl_int failed = 0;
    const char *text = code;
    clGetDeviceInfo(device, 0x101B, sizeof rounded, &rounded, 0);
    made->programs[number] = is_il ? clCreateProgramWithIL(made->context, code, size, &failed)
                                   : clCreateProgramWithSource(made->context, 1, &text, &size, &failed);
    if (failed) return failed;
    const char *options = rounded & 128 ? "-cl-fp32-correctly-rounded-divide-sqrt" : "";
    return clBuildProgram(made->programs[number], 1, &device, options, 0, 0);
}

static cl_int find_kernel(NAME_program *made, int command) {
    cl_int failed = -46;
    const char *name = commands[command].kernel ? commands[command].kernel : "motet_copy";
    if (commands[command].kernel && !commands[command].tasks) return 0;
    for (int i = 0; i <= NAME_PROGRAMS && failed; i++)
        if (made->programs[i]) made->kernels[command] = clCreateKernel(made->programs[i], name, &failed);
    return failed;
}

void NAME_release(NAME_program *made) {
    if (!made) return;
    if (made->last) clWaitForEvents(1, &made->last), clReleaseEvent(made->last);
    for (int i = 0; i < NAME_COMMANDS; i++) if (made->kernels[i]) clReleaseKernel(made->kernels[i]);
    for (int i = 0; i <= NAME_PROGRAMS; i++) if (made->programs[i]) clReleaseProgram(made->programs[i]);
    if (made->arena) clSVMFree(made->context, made->arena);
    if (made->constants) clSVMFree(made->context, made->constants);
    if (made->scratch) clSVMFree(made->context, made->scratch);
    clReleaseContext(made->context);
    free(made);
}

static cl_int fill_constants(NAME_program *made, cl_device_id device) {
    cl_int failed = 0;
    if (!NAME_CONSTANT_BYTES) return 0;
    cl_command_queue queue = clCreateCommandQueueWithProperties(made->context, device, 0, &failed);
    if (failed) return failed;
    failed = clEnqueueSVMMemcpy(queue, 1, made->constants, constants, NAME_CONSTANT_BYTES, 0, 0, 0);
    clReleaseCommandQueue(queue);
    return failed;
}

cl_int NAME_create(cl_context context, cl_device_id device, NAME_program **result) {
    NAME_program *made = calloc(1, sizeof *made);
    cl_platform_id platform = 0;
    cl_uint units = 1;
    cl_int failed = 0;
    *result = 0;
    if (!made) return -6;
    made->context = context;
    clRetainContext(context);
    clGetDeviceInfo(device, 0x1031, sizeof platform, &platform, 0);
    clGetDeviceInfo(device, 0x1002, sizeof units, &units, 0);
    *(void **)&made->set_usm = clGetExtensionFunctionAddressForPlatform(platform, "clSetKernelArgMemPointerINTEL");
    made->items = 4 * (size_t)(units ? units : 1);
    made->arena = clSVMAlloc(context, 1, NAME_ARENA_BYTES + NAME_STATUS_BYTES + 64, 64);
    made->constants = clSVMAlloc(context, 1, NAME_CONSTANT_BYTES + 64, 64);
    made->scratch = clSVMAlloc(context, 1, NAME_STRIDE * made->items + 64, 64);
    if (!made->arena || !made->constants || !made->scratch) failed = -4;
    if (!failed) failed = fill_constants(made, device);
    for (int i = 0; i < NAME_PROGRAMS && !failed; i++)
        failed = build(made, device, i, codes[i].begin, (size_t)(codes[i].end - codes[i].begin), codes[i].is_il);
    if (!failed) failed = build(made, device, NAME_PROGRAMS, copy_source, sizeof copy_source - 1, 0);
    for (int i = 0; i < NAME_COMMANDS && !failed; i++) failed = find_kernel(made, i);
    if (failed) NAME_release(made); else *result = made;
    return failed;
}

static cl_int set_argument(NAME_program *made, cl_kernel kernel, cl_uint index, motet_opencl_argument base,
                           size_t offset, size_t bytes) {
    if (base.kind == MOTET_SVM) return clSetKernelArgSVMPointer(kernel, index, (char *)base.handle + offset);
    if (base.kind == MOTET_USM) return made->set_usm ? made->set_usm(kernel, index, (char *)base.handle + offset) : -59;
    if (!offset) return clSetKernelArg(kernel, index, sizeof base.handle, &base.handle);
    size_t region[2] = {offset, bytes};
    cl_int failed = 0;
    cl_mem part = clCreateSubBuffer((cl_mem)base.handle, 0, 0x1220, region, &failed);
    if (failed) return failed;
    failed = clSetKernelArg(kernel, index, sizeof part, &part);
    return clReleaseMemObject(part), failed;
}

static cl_int run(NAME_program *made, cl_command_queue queue, int number, const motet_opencl_argument *bases,
                  cl_uint waits, const cl_event *wait_list, cl_event *event) {
    const motet_command *command = &commands[number];
    cl_kernel kernel = made->kernels[number];
    cl_int failed = 0;
    cl_uint index = 0;
    size_t one = 1, items = command->tasks;
    const motet_part *part = parts + command->parts;
    for (; index < (cl_uint)command->part_count && !failed; index++, part++)
        failed = set_argument(made, kernel, index, bases[part->external], part->offset, part->bytes);
    if (command->kernel) {
        motet_opencl_argument scratch = {MOTET_SVM, made->scratch};
        int64_t stride = NAME_STRIDE;
        if (NAME_STRIDE && items > made->items) items = made->items;
        for (int i = 0; i < command->size_count && !failed; i++)
            failed = clSetKernelArg(kernel, index++, 8, &sizes[command->sizes + i]);
        if (!failed) failed = clSetKernelArg(kernel, index++, 8, &command->tasks);
        if (!failed) failed = set_argument(made, kernel, index++, scratch, 0, 0);
        if (!failed) failed = clSetKernelArg(kernel, index, 8, &stride);
    } else {
        int64_t bytes = parts[command->parts].bytes;
        items = bytes < 16 ? bytes : 16;
        if (!failed) failed = clSetKernelArg(kernel, index, 8, &bytes);
    }
    return failed ? failed : clEnqueueNDRangeKernel(queue, kernel, 1, 0, &items, &one, waits, wait_list, event);
}

/* The events that a command waits for: those of the commands before it, or all of the call's. */
static cl_uint waits_of(int number, const cl_event *events, cl_uint first, const cl_event *first_list, cl_event *into) {
    const motet_command *command = &commands[number];
    cl_uint count = 0;
    for (int i = 0; i < command->after_count; i++)
        if (events[after[command->after + i]]) into[count++] = events[after[command->after + i]];
    if (NAME_STRIDE && number && events[number - 1]) into[count++] = events[number - 1];
    if (count) return count;
    for (cl_uint i = 0; i < first; i++) into[i] = first_list[i];
    return first;
}

static cl_int enqueue(NAME_program *made, cl_command_queue queue, const motet_opencl_argument *bases, cl_uint first,
                      cl_event *first_list, cl_event *events, cl_event *space, cl_event *end) {
    cl_event ends[NAME_COMMANDS + 1];
    cl_uint end_count = 0;
    cl_int failed = 0;
    if (NAME_STATUS_BYTES) {
        unsigned char zero = 0;
        cl_event cleared = 0;
        failed = clEnqueueSVMMemFill(queue, made->arena + NAME_STATUS_AT, &zero, 1, NAME_STATUS_BYTES, first,
                                     first ? first_list : 0, &cleared);
        if (failed) return failed;
        first_list[first++] = cleared; /* released with the others */
        events[NAME_COMMANDS] = cleared;
    }
    for (int i = 0; i < NAME_COMMANDS && !failed; i++) {
        if (!commands[i].tasks || (!commands[i].kernel && !parts[commands[i].parts].bytes)) {
            cl_uint count = waits_of(i, events, first, first_list, space); /* does nothing, but others wait for it */
            failed = clEnqueueMarkerWithWaitList(queue, count, count ? space : 0, &events[i]);
        } else {
            cl_uint count = waits_of(i, events, first, first_list, space);
            failed = run(made, queue, i, bases, count, count ? space : 0, &events[i]);
        }
        if (commands[i].last) ends[end_count++] = events[i];
    }
    if (failed) return failed;
    if (NAME_STATUS_BYTES)
        return clEnqueueSVMMemcpy(queue, 0, made->told, made->arena + NAME_STATUS_AT, NAME_STATUS_BYTES, end_count,
                                  end_count ? ends : 0, end);
    if (end_count == 1) return *end = ends[0], clRetainEvent(*end);
    if (end_count) return clEnqueueMarkerWithWaitList(queue, end_count, ends, end);
    return clEnqueueMarkerWithWaitList(queue, first, first ? first_list : 0, end);
}

static cl_int enqueue_all(NAME_program *made, cl_command_queue queue, const motet_opencl_argument *bases, cl_uint waits,
                          const cl_event *wait_list, cl_event *event) {
    size_t most = (size_t)waits + 2 * NAME_COMMANDS + 4;
    cl_event *space = calloc(2 * most, sizeof *space), *first_list = space ? space + most : 0, end = 0;
    cl_event events[NAME_COMMANDS + 1] = {0};
    cl_uint first = waits;
    if (!space) return -6;
    for (cl_uint i = 0; i < waits; i++) first_list[i] = wait_list[i];
    if (made->last) first_list[first++] = made->last;
    cl_int failed = enqueue(made, queue, bases, first, first_list, events, space, &end);
    if (failed) clFinish(queue); else failed = clFlush(queue);
    for (int i = 0; i <= NAME_COMMANDS; i++) if (events[i]) clReleaseEvent(events[i]);
    if (made->last) clReleaseEvent(made->last);
    made->last = 0;
    free(space);
    if (end && (NAME_ARENA_BYTES || NAME_STRIDE || NAME_STATUS_BYTES)) clRetainEvent(made->last = end);
    if (end && (failed || !event)) clReleaseEvent(end); else if (event) *event = end;
    return failed;
}
"""
