/* A loader of OpenCL with one platform and one device, whose compiler does what the environment says. No kernel runs.

   FAKE_OPENCL_16, _8, _4, _1   what the compiler does with a program whose longest vectors have so many lanes: abort,
                                hang, exit (without an answer), empty (a program without kernels), reject; else build it
   FAKE_OPENCL_TRIALS=build     builds programs whose kernel is called `trial` nevertheless
   FAKE_OPENCL_LIST             what listing the devices does: abort, hang, exit
   FAKE_OPENCL_LOG              a file that gets a line for each program that is built from its source

   OpenCL's headers are not needed. */

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FLOATS 16 /* that the device prefers */
#define PARAMETERS size_t room, void *out, size_t *needed
typedef struct { char *source, names[4096]; int lanes; } program;
static int platform, device, lost, context, queue, kernel;
enum { INVALID_VALUE = -30, INVALID_OPERATION = -59, BUILD_FAILURE = -11, INVALID_BINARY = -42 };

static int give(const void *value, size_t bytes, PARAMETERS) {
  if (needed) *needed = bytes;
  if (out && room < bytes) return INVALID_VALUE;
  if (out) memcpy(out, value, bytes);
  return 0;
}

static int text(const char *value, PARAMETERS) { return give(value, strlen(value) + 1, room, out, needed); }

static int number(unsigned long value, PARAMETERS) { return give(&value, sizeof value, room, out, needed); }

/* Do what the environment says for `name`, unless that is an answer. */
static const char *obey(const char *name) {
  const char *how = getenv(name) ? getenv(name) : "build";
  if (!strcmp(how, "abort")) {
    fprintf(stderr, "fake compiler\nLLVM ERROR: Cannot select: %s\n", name);
    abort();
  }
  if (!strcmp(how, "exit")) _exit(0);
  if (!strcmp(how, "hang"))
    for (fork();;) pause(); /* compilers start processes */
  return how;
}

/* -- the platform and its device -- */

int clGetPlatformIDs(unsigned room, void **out, unsigned *count) {
  if (count) *count = 1;
  if (out && room) out[0] = &platform;
  return 0;
}

int clGetPlatformInfo(void *of, unsigned what, PARAMETERS) {
  if (what == 0x0902) return text("Fake OpenCL", room, out, needed);
  if (what == 0x0901) return text("OpenCL 3.0 fake", room, out, needed);
  if (what == 0x0920) return text("FAKE", room, out, needed);
  return INVALID_VALUE;
}

int clGetDeviceIDs(void *of, unsigned long kind, unsigned room, void **out, unsigned *count) {
  obey("FAKE_OPENCL_LIST");
  void *const all[] = {&lost, &device}; /* the first is there only if the environment has FAKE_OPENCL_LOST */
  unsigned first = getenv("FAKE_OPENCL_LOST") == NULL;
  if (count) *count = 2 - first;
  for (unsigned i = first; out && i < 2 && i - first < room; i++) out[i - first] = all[i];
  return 0;
}

int clGetDeviceInfo(void *of, unsigned what, PARAMETERS) {
  switch (what) {
  case 0x102B: return text(of == &lost ? "Lost processor" : "Fake processor", room, out, needed);
  case 0x102F: return text("OpenCL 3.0", room, out, needed);
  case 0x102D: return text("1.0", room, out, needed);
  case 0x105B: case 0x1030: return text("", room, out, needed); /* no SPIR-V, no extensions */
  case 0x1031: return number((unsigned long)&platform, room, out, needed);
  case 0x1027: return number(of != &lost, room, out, needed); /* available */
  case 0x1002: return number(2, room, out, needed); /* compute units */
  case 0x101F: return number(1ul << 30, room, out, needed);
  case 0x1010: return number(1ul << 28, room, out, needed);
  case 0x1019: return number(1024, room, out, needed);
  case 0x102A: return number(1, room, out, needed); /* out-of-order queues */
  case 0x103A: return number(FLOATS, room, out, needed);
  default: return INVALID_VALUE;
  }
}

static void *made(void *handle, int *code) {
  *code = 0;
  return handle;
}

void *clCreateContext(void *a, unsigned b, void *c, void *d, void *e, int *code) { return made(&context, code); }
void *clCreateCommandQueueWithProperties(void *a, void *b, void *c, int *code) { return made(&queue, code); }
void *clCreateKernel(void *a, const char *name, int *code) { return made(&kernel, code); }
void *clGetExtensionFunctionAddressForPlatform(void *a, const char *name) { return NULL; }

/* -- programs -- */

static int lanes_of(const char *source) {
  static const char *const types[] = {"char", "short", "int", "long", "float", "double"};
  for (int lanes = 16; lanes > 1; lanes /= 2)
    for (unsigned i = 0; i < sizeof types / sizeof *types; i++) {
      char name[16];
      size_t size = (size_t)sprintf(name, "%s%d", types[i], lanes);
      for (const char *at = source; (at = strstr(at, name)); at += size)
        if (!isalnum(at[size]) && at[size] != '_') return lanes > 2 ? lanes : 4;
    }
  return 1;
}

static void find_kernels(program *made, const char *at) {
  while ((at = strstr(at, "kernel")) && (at = strstr(at, "void "))) {
    at += strlen("void ");
    if (*made->names) strcat(made->names, ";");
    strncat(made->names, at, strcspn(at, "("));
  }
}

void *clCreateProgramWithSource(void *a, unsigned count, const char **texts, const size_t *sizes, int *code) {
  program *created = calloc(1, sizeof *created);
  created->source = strndup(texts[0], sizes[0]);
  created->lanes = lanes_of(created->source);
  find_kernels(created, created->source);
  return made(created, code);
}

void *clCreateProgramWithBinary(
    void *a, unsigned count, void *devices, const size_t *sizes, const char **binaries, int *status, int *code) {
  program *created = calloc(1, sizeof *created);
  strncpy(created->names, binaries[0], sizes[0] < 4095 ? sizes[0] : 4095);
  return made(created, code);
}

int clBuildProgram(program *of, unsigned count, void *devices, const char *options, void *call, void *data) {
  if (!of->source) return 0;
  if (getenv("FAKE_OPENCL_LOG")) {
    FILE *log = fopen(getenv("FAKE_OPENCL_LOG"), "a");
    fprintf(log, "%d %d\n", getpid(), of->lanes);
    fclose(log);
  }
  if (!strcmp(of->names, "trial") && getenv("FAKE_OPENCL_TRIALS")) return 0;
  char name[32];
  sprintf(name, "FAKE_OPENCL_%d", of->lanes);
  const char *how = obey(name);
  if (!strcmp(how, "empty")) *of->names = 0;
  return strcmp(how, "reject") ? 0 : BUILD_FAILURE;
}

int clGetProgramBuildInfo(program *of, void *a, unsigned what, PARAMETERS) {
  char log[64];
  sprintf(log, "1:1: error: no vectors of %d lanes\n", of->lanes);
  return text(log, room, out, needed);
}

int clGetProgramInfo(program *of, unsigned what, PARAMETERS) {
  if (what == 0x1168) return text(of->names, room, out, needed);
  if (what == 0x1165) return number(strlen(of->names), room, out, needed);
  if (what == 0x1166) memcpy(*(void **)out, of->names, strlen(of->names));
  return what == 0x1166 ? 0 : INVALID_VALUE;
}

/* -- what the tests do not need -- */

#define ACCEPTED(name) int name(void) { return 0; }
#define REFUSED(name) int name(void) { return INVALID_OPERATION; }
ACCEPTED(clReleaseContext) ACCEPTED(clReleaseCommandQueue) ACCEPTED(clReleaseProgram) ACCEPTED(clReleaseKernel)
ACCEPTED(clReleaseMemObject) ACCEPTED(clReleaseEvent) ACCEPTED(clRetainContext) ACCEPTED(clRetainMemObject)
ACCEPTED(clRetainEvent) ACCEPTED(clSetKernelArg) ACCEPTED(clFlush) ACCEPTED(clFinish) ACCEPTED(clWaitForEvents)
ACCEPTED(clSVMAlloc) ACCEPTED(clSVMFree)
REFUSED(clEnqueueSVMMemcpy) REFUSED(clEnqueueSVMMemFill) REFUSED(clCreateProgramWithIL)
REFUSED(clSetKernelArgSVMPointer) REFUSED(clEnqueueNDRangeKernel) REFUSED(clCreateUserEvent)
REFUSED(clSetUserEventStatus) REFUSED(clGetContextInfo) REFUSED(clGetCommandQueueInfo) REFUSED(clGetMemObjectInfo)
REFUSED(clGetEventInfo) REFUSED(clCreateBuffer) REFUSED(clCreateSubBuffer) REFUSED(clEnqueueReadBuffer)
REFUSED(clEnqueueWriteBuffer) REFUSED(clEnqueueCopyBuffer) REFUSED(clEnqueueFillBuffer)
REFUSED(clEnqueueMarkerWithWaitList)
