/* Loads relocatable ELF objects for x86-64 into memory, as drivers/host/loader.py does: code, constants with the global
   offset table, and data, in one mapping of which no page is both writable and executable. Source: System V ABI. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

#ifndef __x86_64__
#error "this library loads code for x86-64 alone"
#endif

enum { STUB = 8, LARGEST_ALIGNMENT = 1 << 16 };
enum region { TEXT, CONSTANTS, DATA, REGIONS };
static const size_t LARGEST = (size_t)1 << 40;

struct global {
    const char *name;
    uint8_t *address;
    int weak;
};

struct object {
    const char *name;
    struct bytes file;
    const Elf64_Shdr *sections;
    size_t section_count, symbol_count;
    const Elf64_Sym *symbols;
    const char *strings;
    size_t string_size;
    uint8_t **places;   /* of the sections that are loaded */
    size_t *slots;      /* each symbol's slot in the global offset table, from 1; 0: it has none */
};

struct linker {
    struct code *code;
    struct object *objects;
    size_t count, slot_count;
    uint8_t *stubs, *slots;
};

/* -- reading ----------------------------------------------------------------------------------- */

static const char *text_at(const struct object *object, const char *strings, size_t size, size_t at) {
    if (at >= size || !memchr(strings + at, 0, size - at)) damaged("%s: a name lies outside its table", object->name);
    return strings + at;
}

/* The table of a section, whose entries have `entry` bytes, aligned as its elements. */
static const void *table(
    struct linker *linker, const struct object *object, size_t number, size_t entry, size_t *count) {
    if (number >= object->section_count)
        damaged("%s: section %zu; there are %zu", object->name, number, object->section_count);
    const Elf64_Shdr *section = &object->sections[number];
    struct bytes data = slice(object->file, section->sh_offset, section->sh_size, object->name);
    if (data.size % entry) damaged("%s: section %zu is cut short", object->name, number);
    *count = data.size / entry;
    return memcpy(take(&linker->code->zone, data.size + 1, 1), data.data, data.size);
}

static void read_object(struct linker *linker, struct object *object) {
    Elf64_Ehdr header;
    memcpy(&header, slice(object->file, 0, sizeof header, object->name).data, sizeof header);
    bool known = !memcmp(header.e_ident, ELFMAG, SELFMAG) && header.e_ident[EI_CLASS] == ELFCLASS64
                 && header.e_ident[EI_DATA] == ELFDATA2LSB && header.e_type == ET_REL
                 && header.e_machine == EM_X86_64 && header.e_shentsize == sizeof(Elf64_Shdr);
    if (!known) damaged("%s: not a relocatable ELF object for x86-64", object->name);
    size_t size = header.e_shnum * sizeof(Elf64_Shdr);
    struct bytes sections = slice(object->file, header.e_shoff, size, object->name);
    object->sections = memcpy(take(&linker->code->zone, sections.size + 1, 1), sections.data, sections.size);
    object->section_count = header.e_shnum;
    object->places = take(&linker->code->zone, header.e_shnum, sizeof *object->places);
    for (size_t number = 0; number < object->section_count; number++) {
        if (object->sections[number].sh_type != SHT_SYMTAB) continue;
        if (object->symbols) damaged("%s: more than one symbol table", object->name);
        object->symbols = table(linker, object, number, sizeof *object->symbols, &object->symbol_count);
        object->strings = table(linker, object, object->sections[number].sh_link, 1, &object->string_size);
    }
    object->slots = take(&linker->code->zone, object->symbol_count, sizeof *object->slots);
}

/* The region in which a section is loaded; REGIONS for one that is not: unwind tables, notes, debug information. */
static enum region region_of(const struct object *object, size_t number) {
    const Elf64_Shdr *section = &object->sections[number];
    if (!(section->sh_flags & SHF_ALLOC) || section->sh_type == SHT_X86_64_UNWIND || section->sh_type == SHT_NOTE)
        return REGIONS;
    bool writable = section->sh_flags & SHF_WRITE, executable = section->sh_flags & SHF_EXECINSTR;
    bool constructor = section->sh_type >= SHT_INIT_ARRAY && section->sh_type <= SHT_PREINIT_ARRAY;
    if (section->sh_flags & SHF_TLS || constructor || (writable && executable))
        damaged("%s: section %zu: thread-local storage, constructors or writable code", object->name, number);
    size_t alignment = section->sh_addralign;
    if (alignment & (alignment - 1) || alignment > LARGEST_ALIGNMENT || section->sh_size > LARGEST)
        damaged("%s: section %zu: %zu bytes aligned to %zu", object->name, number, (size_t)section->sh_size, alignment);
    if (section->sh_type != SHT_NOBITS) slice(object->file, section->sh_offset, section->sh_size, object->name);
    return executable ? TEXT : writable ? DATA : CONSTANTS;
}

/* -- symbols ----------------------------------------------------------------------------------- */

static uint8_t *defined(const struct object *object, const Elf64_Sym *symbol) {
    if (symbol->st_shndx == SHN_ABS) return (uint8_t *)symbol->st_value;
    if (symbol->st_shndx >= object->section_count || !object->places[symbol->st_shndx]
        || symbol->st_value > object->sections[symbol->st_shndx].sh_size)
        damaged("%s: a symbol lies outside the sections that are loaded", object->name);
    return object->places[symbol->st_shndx] + symbol->st_value;
}

void *find_code(const struct code *code, const char *name) {
    size_t low = 0, high = code->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(name, code->globals[middle].name);
        if (!order) return code->globals[middle].address;
        *(order < 0 ? &high : &low) = order < 0 ? middle : middle + 1;
    }
    return NULL;
}

/* By name, strong definitions before weak ones. */
static int by_name(const void *a, const void *b) {
    const struct global *one = a, *two = b;
    int order = strcmp(one->name, two->name);
    return order ? order : one->weak - two->weak;
}

static void collect_globals(struct linker *linker) {
    size_t most = 0, kept = 0;
    struct code *code = linker->code;
    for (size_t i = 0; i < linker->count; i++) most += linker->objects[i].symbol_count;
    code->globals = take(&code->zone, most, sizeof *code->globals);
    for (size_t i = 0; i < linker->count; i++) {
        struct object *object = &linker->objects[i];
        for (size_t j = 0; j < object->symbol_count; j++) {
            const Elf64_Sym *symbol = &object->symbols[j];
            int binding = ELF64_ST_BIND(symbol->st_info);
            if (binding == STB_LOCAL || symbol->st_shndx == SHN_UNDEF) continue;
            if (symbol->st_shndx == SHN_COMMON) damaged("%s: common symbols, which are not supported", object->name);
            const char *name = text_at(object, object->strings, object->string_size, symbol->st_name);
            code->globals[kept++] = (struct global){name, defined(object, symbol), binding == STB_WEAK};
        }
    }
    qsort(code->globals, kept, sizeof *code->globals, by_name);
    for (size_t i = 0; i < kept; i++) {
        const struct global *global = &code->globals[i];
        bool known = code->count && !strcmp(code->globals[code->count - 1].name, global->name);
        if (known && !global->weak) damaged("symbol '%s' is defined in two objects", global->name);
        if (!known) code->globals[code->count++] = *global;
    }
}

static uint8_t *resolve(struct linker *linker, const struct object *object, const Elf64_Sym *symbol) {
    if (ELF64_ST_BIND(symbol->st_info) == STB_LOCAL && symbol->st_shndx != SHN_UNDEF) return defined(object, symbol);
    const char *name = text_at(object, object->strings, object->string_size, symbol->st_name);
    uint8_t *found = find_code(linker->code, name);
    if (!found && *name) found = dlsym(RTLD_DEFAULT, name);
    if (!found && *name && ELF64_ST_BIND(symbol->st_info) != STB_WEAK)
        unsupported("%s: undefined symbol '%s': neither an object nor the C and mathematics libraries define it",
                    object->name, name);
    return found;
}

/* -- layout and relocation --------------------------------------------------------------------- */

/* Calls `visit` for each relocation of each section that is loaded. */
static void each_relocation(
    struct linker *linker,
    void (*visit)(struct linker *, struct object *, uint8_t *, size_t, const Elf64_Rela *)) {
    for (size_t i = 0; i < linker->count; i++)
        for (size_t number = 0; number < linker->objects[i].section_count; number++) {
            struct object *object = &linker->objects[i];
            const Elf64_Shdr *section = &object->sections[number];
            size_t target = section->sh_info, count;
            if (section->sh_type != SHT_RELA || target >= object->section_count
                || region_of(object, target) == REGIONS)
                continue;
            const Elf64_Rela *entries = table(linker, object, number, sizeof *entries, &count);
            for (size_t j = 0; j < count; j++) {
                if (ELF64_R_SYM(entries[j].r_info) >= object->symbol_count)
                    damaged("%s: a relocation to symbol %zu", object->name, (size_t)ELF64_R_SYM(entries[j].r_info));
                size_t size = object->sections[target].sh_type == SHT_NOBITS ? 0 : object->sections[target].sh_size;
                visit(linker, object, object->places[target], size, &entries[j]);
            }
        }
}

static bool is_got(uint64_t type) {
    return type == R_X86_64_GOTPCREL || type == R_X86_64_GOTPCRELX || type == R_X86_64_REX_GOTPCRELX;
}

static void count_slot(
    struct linker *linker, struct object *object, uint8_t *at, size_t size, const Elf64_Rela *entry) {
    size_t number = ELF64_R_SYM(entry->r_info);
    uint64_t type = ELF64_R_TYPE(entry->r_info);
    bool called = type == R_X86_64_PLT32 && object->symbols[number].st_shndx == SHN_UNDEF;
    if ((is_got(type) || called) && !object->slots[number]) object->slots[number] = ++linker->slot_count;
    (void)at, (void)size;
}

static void write_stubs(struct linker *linker) {
    for (size_t i = 0; i < linker->count; i++)
        for (size_t j = 0; j < linker->objects[i].symbol_count; j++) {
            size_t slot = linker->objects[i].slots[j];
            if (!slot) continue;
            uint8_t *address = resolve(linker, &linker->objects[i], &linker->objects[i].symbols[j]);
            memcpy(linker->slots + 8 * (slot - 1), &address, 8);
            uint8_t *stub = linker->stubs + STUB * (slot - 1);
            int32_t distance = (int32_t)(linker->slots + 8 * (slot - 1) - stub - 6);
            memcpy(stub, "\xff\x25", 2); /* jmp [rip + distance] */
            memcpy(stub + 2, &distance, 4);
        }
}

static void relocate(
    struct linker *linker, struct object *object, uint8_t *section, size_t size, const Elf64_Rela *entry) {
    uint64_t type = ELF64_R_TYPE(entry->r_info);
    if (type == R_X86_64_NONE) return;
    const Elf64_Sym *symbol = &object->symbols[ELF64_R_SYM(entry->r_info)];
    size_t slot = object->slots[ELF64_R_SYM(entry->r_info)], width = 4;
    if (type == R_X86_64_64 || type == R_X86_64_PC64) width = 8;
    if (entry->r_offset > size || size - entry->r_offset < width)
        damaged("%s: a relocation at %zu, outside its section", object->name, (size_t)entry->r_offset);
    uint8_t *at = section + entry->r_offset;
    uint64_t target;
    if (is_got(type))
        target = (uint64_t)(linker->slots + 8 * (slot - 1));
    else if (type == R_X86_64_PLT32 && slot && symbol->st_shndx == SHN_UNDEF)
        target = (uint64_t)(linker->stubs + STUB * (slot - 1));
    else
        target = (uint64_t)resolve(linker, object, symbol);
    target += (uint64_t)entry->r_addend;
    bool absolute = type == R_X86_64_64 || type == R_X86_64_32 || type == R_X86_64_32S;
    if (!absolute && type != R_X86_64_PC32 && type != R_X86_64_PC64 && type != R_X86_64_PLT32 && !is_got(type))
        unsupported("%s: relocation of type %zu, which is not supported", object->name, (size_t)type);
    uint64_t value = absolute ? target : target - (uint64_t)at;
    bool fits = type == R_X86_64_32 ? value <= UINT32_MAX : (uint64_t)(int64_t)(int32_t)value == value;
    if (width == 4 && !fits) unsupported("%s: a relocation of 32 bits cannot hold its distance", object->name);
    memcpy(at, &value, width);
}

void load_objects(struct code *code, const struct bytes *objects, const char *const *names, size_t count) {
    struct linker linker = {.code = code, .count = count};
    linker.objects = take(&code->zone, count, sizeof *linker.objects);
    for (size_t i = 0; i < count; i++) {
        linker.objects[i].name = names[i];
        linker.objects[i].file = objects[i];
        read_object(&linker, &linker.objects[i]);
    }
    each_relocation(&linker, count_slot);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t edges[REGIONS + 1] = {0}, end = 0;
    for (int written = 0; written < 2; written++, end = 0) { /* first the size, then the sections */
        for (enum region region = TEXT; region < REGIONS; region++) {
            edges[region] = end = (size_t)round_up((int64_t)end, (int64_t)page);
            for (size_t i = 0; i < count; i++)
                for (size_t number = 0; number < linker.objects[i].section_count; number++) {
                    const Elf64_Shdr *section = &linker.objects[i].sections[number];
                    if (region_of(&linker.objects[i], number) != region) continue;
                    end = (size_t)round_up((int64_t)end, section->sh_addralign ? (int64_t)section->sh_addralign : 1);
                    uint8_t *place = written ? code->base + end : NULL;
                    if (written && section->sh_type != SHT_NOBITS)
                        memcpy(place, linker.objects[i].file.data + section->sh_offset, section->sh_size);
                    linker.objects[i].places[number] = place;
                    if ((end += section->sh_size) > LARGEST) damaged("objects of more than %zu bytes", LARGEST);
                }
            if (region == DATA) continue;
            end = (size_t)round_up((int64_t)end, 8);
            *(region == TEXT ? &linker.stubs : &linker.slots) = (uint8_t *)((uintptr_t)code->base + end);
            end += 8 * linker.slot_count; /* a stub is as long as a slot */
        }
        edges[REGIONS] = (size_t)round_up((int64_t)end + 1, (int64_t)page);
        if (!written) code->base = map_pages(edges[REGIONS]), code->size = edges[REGIONS];
    }
    collect_globals(&linker);
    write_stubs(&linker);
    each_relocation(&linker, relocate);
    static const int protections[] = {PROT_READ | PROT_EXEC, PROT_READ, PROT_READ | PROT_WRITE};
    for (int region = 0; region < REGIONS; region++)
        if (mprotect(code->base + edges[region], edges[region + 1] - edges[region], protections[region]))
            unsupported("the operating system refuses memory for code");
}
