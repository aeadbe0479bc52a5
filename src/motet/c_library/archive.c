/* The file of an artifact: a zip archive of stored members, whose hashes are in its manifest. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <immintrin.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

enum { END = 22, LOCATOR = 20, LARGE_END = 56, ENTRY = 46, LOCAL = 30 }; /* bytes of records */
enum { LONGEST_COMMENT = 65535, MOST_MEMBERS = 1 << 15 };

struct stored {
    const char *name;
    struct bytes data;
};

static uint64_t number(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int byte = 0; byte < bytes; byte++) value |= (uint64_t)at[byte] << 8 * byte;
    return value;
}

struct bytes map_file(const char *path) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (file < 0) damaged("%s: cannot be read: %s", path, strerror(errno));
    void *data = MAP_FAILED;
    bool regular = fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    if (regular && status.st_size > 0) data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    int reason = errno;
    close(file);
    if (!regular) damaged("%s: not an artifact: no file", path);
    if (!status.st_size) damaged("%s: not an artifact: the file is empty", path);
    if (data == MAP_FAILED) damaged("%s: cannot be mapped: %s", path, strerror(reason));
    return (struct bytes){data, (size_t)status.st_size};
}

/* -- SHA-256 (FIPS 180-4) ---------------------------------------------------------------------- */

struct hash {
    uint32_t state[8];
    uint64_t size;
    uint8_t block[64];
};
static const struct hash EMPTY_HASH = {.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                                                 0x1f83d9ab, 0x5be0cd19}};

static inline uint32_t rotate(uint32_t value, int by) { return value >> by | value << (32 - by); }

static const uint32_t CONSTANTS[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static void hash_block(uint32_t *state, const uint8_t *block) {
    uint32_t words[64], a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    memcpy(words, block, 64);
    for (int i = 0; i < 16; i++) words[i] = __builtin_bswap32(words[i]);
    for (int i = 16; i < 64; i++) {
        uint32_t x = words[i - 15], y = words[i - 2];
        words[i] = words[i - 16] + words[i - 7] + (rotate(x, 7) ^ rotate(x, 18) ^ x >> 3)
                   + (rotate(y, 17) ^ rotate(y, 19) ^ y >> 10);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 64; i++) {
        uint32_t one = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g));
        one += CONSTANTS[i] + words[i];
        uint32_t two = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
    }
    const uint32_t sums[] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; i++) state[i] += sums[i];
}

/* The same with the processor's instructions, which are ten times as fast. */
__attribute__((target("sha,sse4.1"))) static void hash_block_fast(uint32_t *state, const uint8_t *block) {
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i words[4], low = _mm_loadu_si128((const void *)state), high = _mm_loadu_si128((const void *)(state + 4));
    low = _mm_shuffle_epi32(low, 0xb1), high = _mm_shuffle_epi32(high, 0x1b);
    __m128i first = _mm_alignr_epi8(low, high, 8), second = _mm_blend_epi16(high, low, 0xf0);
    __m128i begin = first, other = second;
    for (int i = 0; i < 4; i++)
        words[i] = _mm_shuffle_epi8(_mm_loadu_si128((const void *)(block + 16 * i)), swap);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        __m128i *own = &words[i & 3], last = words[(i + 3) & 3];
        __m128i sum = _mm_add_epi32(*own, _mm_loadu_si128((const void *)(CONSTANTS + 4 * i)));
        second = _mm_sha256rnds2_epu32(second, first, sum);
        first = _mm_sha256rnds2_epu32(first, second, _mm_shuffle_epi32(sum, 0x0e));
        *own = _mm_sha256msg1_epu32(*own, words[(i + 1) & 3]);
        *own = _mm_sha256msg2_epu32(_mm_add_epi32(*own, _mm_alignr_epi8(last, words[(i + 2) & 3], 4)), last);
    }
    first = _mm_add_epi32(first, begin), second = _mm_add_epi32(second, other);
    low = _mm_shuffle_epi32(first, 0x1b), high = _mm_shuffle_epi32(second, 0xb1);
    _mm_storeu_si128((void *)state, _mm_blend_epi16(low, high, 0xf0));
    _mm_storeu_si128((void *)(state + 4), _mm_alignr_epi8(high, low, 8));
}

static bool is_fast(void) {
#ifdef MOTET_PORTABLE_HASH
    return false;
#endif
    unsigned a, b = 0, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b >> 29 & 1;
}

static void hash_bytes(struct hash *hash, const void *bytes, size_t size) {
    void (*block)(uint32_t *, const uint8_t *) = is_fast() ? hash_block_fast : hash_block;
    const uint8_t *data = bytes;
    while (size) {
        size_t filled = hash->size % 64, taken = size < 64 - filled ? size : 64 - filled;
        if (taken == 64)
            block(hash->state, data);
        else {
            memcpy(hash->block + filled, data, taken);
            if (filled + taken == 64) block(hash->state, hash->block);
        }
        hash->size += taken, data += taken, size -= taken;
    }
}

static void end_hash(struct hash *hash, uint8_t digest[32]) {
    uint64_t bits = __builtin_bswap64(hash->size * 8);
    hash_bytes(hash, "\x80", 1);
    while (hash->size % 64 != 56) hash_bytes(hash, "", 1);
    hash_bytes(hash, &bits, 8);
    for (int i = 0; i < 32; i++) digest[i] = (uint8_t)(hash->state[i / 4] >> (24 - i % 4 * 8));
}

static bool is_digest(const uint8_t digest[32], const char *text) {
    char hexadecimal[65];
    for (int i = 0; i < 32; i++) snprintf(hexadecimal + 2 * i, 3, "%02x", digest[i]);
    return !strcmp(hexadecimal, text);
}

/* See artifact/hashes.py: the hash of a member longer than `piece` is that of the digests of its pieces. */
static bool is_intact(struct bytes data, size_t piece, const char *expected) {
    uint8_t digest[32];
    struct hash whole = EMPTY_HASH;
    bool divided = piece && data.size > piece;
    for (size_t at = 0; divided && at < data.size; at += piece) {
        struct hash part = EMPTY_HASH;
        hash_bytes(&part, data.data + at, data.size - at < piece ? data.size - at : piece);
        end_hash(&part, digest);
        hash_bytes(&whole, digest, sizeof digest);
    }
    if (!divided) hash_bytes(&whole, data.data, data.size);
    end_hash(&whole, digest);
    return is_digest(digest, expected);
}

/* -- the archive ------------------------------------------------------------------------------- */

/* The directory's bytes and its number of entries, which archives over 4 GiB have in another record. */
static struct bytes find_directory(struct bytes all, size_t *count) {
    size_t at = all.size < END ? 0 : all.size - END;
    size_t last = at > LONGEST_COMMENT ? at - LONGEST_COMMENT : 0;
    while (at > last && memcmp(all.data + at, "PK\5\6", 4)) at--;
    const uint8_t *end = slice(all, at, END, "the end of the archive").data;
    if (memcmp(end, "PK\5\6", 4)) damaged("not a zip archive, or cut short");
    *count = number(end + 10, 2);
    uint64_t size = number(end + 12, 4), offset = number(end + 16, 4);
    if (at >= LOCATOR && !memcmp(end - LOCATOR, "PK\6\7", 4)) {
        const uint8_t *large = slice(all, number(end - LOCATOR + 8, 8), LARGE_END, "the end of the archive").data;
        if (memcmp(large, "PK\6\6", 4)) damaged("damaged: the archive's end has no record of 64 bits");
        *count = number(large + 32, 8), size = number(large + 40, 8), offset = number(large + 48, 8);
    }
    return slice(all, offset, size, "the directory");
}

/* Replaces fields of 32 bits that are full by those of 64 bits in an entry's extra field. */
static void read_large_fields(struct bytes extra, uint64_t *fields[3]) {
    for (size_t at = 0; at + 4 <= extra.size;) {
        struct bytes own = slice(extra, at + 4, number(extra.data + at + 2, 2), "an extra field");
        size_t next = 0;
        for (int i = 0; i < 3 && number(extra.data + at, 2) == 1; i++)
            if (*fields[i] == UINT32_MAX) {
                *fields[i] = number(slice(own, next, 8, "a size of 64 bits").data, 8);
                next += 8;
            }
        at += 4 + own.size;
    }
}

static size_t read_entry(struct artifact_file *file, struct bytes directory, size_t at, struct stored *stored) {
    const uint8_t *entry = slice(directory, at, ENTRY, "an entry of the directory").data;
    if (memcmp(entry, "PK\1\2", 4)) damaged("damaged: no entry at byte %zu of the directory", at);
    size_t name = number(entry + 28, 2), extra = number(entry + 30, 2), comment = number(entry + 32, 2);
    uint64_t full = number(entry + 24, 4), packed = number(entry + 20, 4), offset = number(entry + 42, 4);
    struct bytes text = slice(directory, at + ENTRY, name, "a member's name");
    struct bytes large = slice(directory, at + ENTRY + name, extra, "an extra field");
    read_large_fields(large, (uint64_t *[]){&full, &packed, &offset});
    stored->name = memcpy(take(file->zone, name + 1, 1), text.data, name);
    if (number(entry + 10, 2) || number(entry + 8, 2) & 1 || full != packed)
        damaged("member '%s': compressed or encrypted; expected stored", stored->name);
    const uint8_t *local = slice(file->data, offset, LOCAL, stored->name).data;
    if (memcmp(local, "PK\3\4", 4)) damaged("member '%s': damaged: its header does not fit the archive", stored->name);
    uint64_t begin = offset + LOCAL + number(local + 26, 2) + number(local + 28, 2);
    stored->data = slice(file->data, begin, full, stored->name);
    return at + ENTRY + name + extra + comment;
}

static struct stored *find_stored(const struct artifact_file *file, const char *name, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!strcmp(file->stored[i].name, name)) return &file->stored[i];
    return NULL;
}

static void check_version(struct node *manifest) {
    const char *producer = string(manifest, "producer", "an unknown version", "manifest.json");
    int64_t schema = integer(manifest, "schema", -1, INT64_MIN, INT64_MAX, "manifest.json");
    if (schema != SCHEMA_VERSION)
        unsupported("made by %s in the %s format %lld; this version reads format %d",
                    producer, schema > SCHEMA_VERSION ? "newer" : "older", (long long)schema, SCHEMA_VERSION);
}

/* Compares the manifest with the one that the code was compiled with: see `seal_of` in artifact/contracts.py. The hash
   is that of its text, which is in the same form, without what is said of members. */
static void check_seal(struct artifact_file *file, struct bytes text) {
    struct bytes contracts = member(file, "contracts.json");
    const char *seal = string(parse_json(file->zone, contracts, "contracts.json"), "seal", NULL, "contracts.json");
    struct node *members = needed(file->manifest, "members", OBJECT, "manifest.json");
    struct node *external = field(file->manifest, "external_parameters", STRING, "manifest.json");
    size_t end = external ? external->named - 1 : text.size; /* with the comma before it */
    struct hash hash = EMPTY_HASH;
    uint8_t digest[32];
    if (end < members->end) damaged("manifest.json: external_parameters before members; expected it last");
    hash_bytes(&hash, text.data, members->begin);
    hash_bytes(&hash, "{}", 2);
    hash_bytes(&hash, text.data + members->end, end - members->end);
    if (external) hash_bytes(&hash, text.data + external->end, text.size - external->end);
    end_hash(&hash, digest);
    if (!is_digest(digest, seal))
        damaged("the manifest is not the one that its code was compiled with; compile it again");
}

void open_archive(struct artifact_file *file) {
    struct bytes directory = find_directory(file->data, &file->count);
    if (file->count > MOST_MEMBERS || file->count > directory.size / ENTRY)
        damaged("damaged: %zu members in %zu bytes", file->count, directory.size);
    file->stored = take(file->zone, file->count + 1, sizeof *file->stored);
    for (size_t i = 0, at = 0; i < file->count; i++) {
        at = read_entry(file, directory, at, &file->stored[i]);
        if (find_stored(file, file->stored[i].name, i)) damaged("member '%s': it is there twice", file->stored[i].name);
    }
    struct stored *manifest = find_stored(file, "manifest.json", file->count);
    if (!manifest) damaged("not an artifact: a zip archive without manifest.json");
    file->manifest = parse_json(file->zone, manifest->data, "manifest.json");
    check_version(file->manifest);
    struct node *external = field(file->manifest, "external_parameters", STRING, "manifest.json");
    if (external && file->folder && *external->text && !strchr(external->text, '/')) {
        size_t size = strlen(file->folder) + strlen(external->text) + 2;
        char *path = take(file->zone, size, 1);
        snprintf(path, size, "%s/%s", file->folder, external->text);
        file->external = map_file(path);
        file->stored[file->count++] = (struct stored){external->text, file->external};
    } else if (external)
        damaged("parameters are in file '%s'; open it from its folder", external->text);
    struct node *members = needed(file->manifest, "members", OBJECT, "manifest.json");
    if (members->count != file->count - 1) damaged("members do not fit the manifest, which has %zu", members->count);
    check_seal(file, manifest->data);
}

struct bytes member(struct artifact_file *file, const char *name) {
    struct node *members = needed(file->manifest, "members", OBJECT, "manifest.json");
    struct node *entry = needed(members, name, OBJECT, "members");
    struct stored *stored = find_stored(file, name, file->count);
    int64_t size = integer(entry, "size", -1, 0, LIMIT, name), piece = integer(entry, "piece", 0, 0, LIMIT, name);
    if (!stored || stored->data.size != (size_t)size) damaged("member '%s': its size is not the manifest's", name);
    if (!is_intact(stored->data, (size_t)piece, string(entry, "sha256", NULL, name)))
        damaged("member '%s': damaged: its hash is not the one in the manifest", name);
    return stored->data;
}
