/* Opening and closing artifacts, and what they have. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

struct opening {
    struct motet_artifact *artifact;
    bool given;
    const char *path;
    const void *data;
    size_t size;
    int threads;
};

/* Prefixes what `read` raises with the artifact's name. */
static void read(void *context) {
    struct motet_artifact *artifact = ((struct opening *)context)->artifact;
    open_archive(&artifact->file);
    read_manifest(artifact);
    start_threads(artifact, ((struct opening *)context)->threads);
}

static void read_content(const struct opening *opening, struct artifact_file *file) {
    if (opening->path) {
        file->data = map_file(opening->path);
        const char *slash = strrchr(opening->path, '/');
        file->folder = slash ? print(file->zone, "%.*s/", (int)(slash - opening->path), opening->path) : ".";
    } else {
        if (!opening->size) damaged("artifact: not an artifact: no bytes");
        file->data = (struct bytes){map_pages(opening->size), opening->size};
        memcpy((void *)file->data.data, opening->data, opening->size);
    }
}

static void begin(void *context) {
    struct opening *opening = context;
    if (!opening->given)
        raise_error(MOTET_INVALID_ARGUMENT, "a null pointer given; expected an artifact, and memory for its handle");
    struct motet_artifact *artifact = opening->artifact = calloc(1, sizeof *artifact);
    if (!artifact) raise_error(MOTET_OUT_OF_MEMORY, "out of memory: %zu bytes", sizeof *artifact);
    pthread_mutex_init(&artifact->lock, NULL);
    artifact->file.zone = &artifact->zone;
    read_content(opening, &artifact->file);
    int status = protect(read, opening);
    const char *source = opening->path ? opening->path : "artifact";
    if (status) raise_error(status, "%s: %s", source, print(&artifact->zone, "%s", motet_error()));
}

static int open_artifact(struct opening opening, motet_artifact **artifact) {
    opening.given = artifact && (opening.path || opening.data);
    int status = protect(begin, &opening);
    if (status) {
        motet_close(opening.artifact);
        opening.artifact = NULL;
    }
    if (artifact) *artifact = opening.artifact;
    return status;
}

int motet_open(const char *path, int threads, motet_artifact **artifact) {
    return open_artifact((struct opening){.path = path, .threads = threads}, artifact);
}

int motet_open_memory(const void *data, size_t size, int threads, motet_artifact **artifact) {
    return open_artifact((struct opening){.data = data, .size = size, .threads = threads}, artifact);
}

void motet_close(motet_artifact *artifact) {
    if (!artifact) return;
    stop_threads(artifact);
    free_calls(artifact);
    struct bytes mapped[] = {artifact->file.data, artifact->file.external, {artifact->code.base, artifact->code.size},
                             {artifact->executor.base, artifact->executor.size}};
    for (size_t i = 0; i < sizeof mapped / sizeof *mapped; i++)
        if (mapped[i].data) munmap((void *)mapped[i].data, mapped[i].size);
    free_zone(&artifact->code.zone);
    free_zone(&artifact->executor.zone);
    free_zone(&artifact->zone);
    pthread_mutex_destroy(&artifact->lock);
    free(artifact);
}

const motet_function *motet_function_at(const motet_artifact *artifact, size_t index) {
    for (size_t i = 0; artifact && i < artifact->function_count; i++)
        if (!artifact->functions[i].hidden && index-- == 0) return &artifact->functions[i];
    return NULL;
}

const motet_function *motet_find_function(const motet_artifact *artifact, const char *name) {
    for (size_t i = 0; artifact && name && i < artifact->function_count; i++)
        if (!strcmp(artifact->functions[i].name, name)) return &artifact->functions[i];
    return NULL;
}

const char *motet_function_name(const motet_function *function) { return function ? function->name : NULL; }

const motet_spec *motet_input(const motet_function *function, size_t index) {
    return function && index < function->given_count ? &function->inputs[index].spec : NULL;
}

const motet_spec *motet_result(const motet_function *function, size_t index) {
    return function && index < function->result_count ? &function->results[index].spec : NULL;
}
