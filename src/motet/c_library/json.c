/* Reads JSON into nodes, and fields of objects with their kinds checked. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { DEEPEST = 128 };
static const char *const KINDS[] = {"null", "a boolean", "an integer", "a number", "a string", "a list", "an object"};

struct reader {
    struct zone *zone;
    struct bytes text;
    size_t at;
    const char *where;
};

static noreturn void refuse(const struct reader *reader, const char *expected) {
    damaged("%s: no valid JSON at byte %zu: expected %s", reader->where, reader->at, expected);
}

static int peek(const struct reader *reader) {
    return reader->at < reader->text.size ? reader->text.data[reader->at] : -1;
}

static int peek_token(struct reader *reader) {
    while (peek(reader) == ' ' || peek(reader) == '\t' || peek(reader) == '\n' || peek(reader) == '\r') reader->at++;
    return peek(reader);
}

static void expect(struct reader *reader, char character) {
    const char expected[] = {'\'', character, '\'', 0};
    if (peek_token(reader) != character) refuse(reader, expected);
    reader->at++;
}

static const char *read_string(struct reader *reader) {
    expect(reader, '"');
    size_t end = reader->at;
    while (end < reader->text.size && reader->text.data[end] != '"') end += reader->text.data[end] == '\\' ? 2 : 1;
    if (end >= reader->text.size) refuse(reader, "the end of a string");
    char *text = take(reader->zone, end - reader->at + 1, 1), *out = text;
    while (reader->at < end) {
        int character = peek(reader);
        reader->at++;
        if (character < ' ') refuse(reader, "a character of a string");
        if (character != '\\') {
            *out++ = (char)character;
            continue;
        }
        /* Motet writes other characters as they are, and control characters as \u00XX. */
        static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
        int escape = peek(reader);
        const char *found = escape > 0 ? strchr(from, escape) : NULL;
        unsigned code = 0;
        char hexadecimal[6] = "";
        if (end - reader->at >= 5) memcpy(hexadecimal, reader->text.data + reader->at, 5);
        if (!found && (sscanf(hexadecimal, "u00%2x", &code) != 1 || !code || code > 127))
            refuse(reader, "an escape sequence of a character");
        reader->at += found ? 1 : 5;
        *out++ = found ? to[found - from] : (char)code;
    }
    reader->at = end + 1;
    return text;
}

static void read_number(struct reader *reader, struct node *node) {
    char digits[64] = "", *end;
    size_t length = 0;
    for (; peek(reader) > 0 && strchr("+-.eE0123456789", peek(reader)); reader->at++) {
        if (length == sizeof digits - 1) refuse(reader, "a shorter number");
        digits[length++] = (char)peek(reader);
    }
    if (!length) refuse(reader, "a value");
    node->kind = strpbrk(digits, ".eE") ? REAL : INTEGER; /* no reader needs the value of a real number */
    if (node->kind == REAL) return;
    errno = 0;
    node->integer = strtoll(digits, &end, 10);
    if (errno || *end || digits[0] == '+') refuse(reader, "an integer of 64 bits");
}

static struct node *read_value(struct reader *reader, int depth);

static void read_items(struct reader *reader, struct node *node, int depth) {
    char close = node->kind == LIST ? ']' : '}';
    reader->at++;
    struct node **end = &node->first;
    while (node->count || peek_token(reader) != close) {
        size_t named = reader->at;
        const char *name = node->kind == OBJECT ? read_string(reader) : NULL;
        if (name) expect(reader, ':');
        *end = read_value(reader, depth + 1);
        (*end)->name = name;
        (*end)->named = named;
        end = &(*end)->next;
        node->count++;
        if (peek_token(reader) == close) break;
        expect(reader, ',');
        peek_token(reader);
    }
    reader->at++;
}

static struct node *read_value(struct reader *reader, int depth) {
    static const char *const words[] = {"null", "false", "true"};
    if (depth > DEEPEST) refuse(reader, "less depth");
    struct node *node = take(reader->zone, 1, sizeof *node);
    int character = peek_token(reader);
    node->begin = reader->at;
    if (character == '{' || character == '[') {
        node->kind = character == '{' ? OBJECT : LIST;
        read_items(reader, node, depth);
    } else if (character == '"') {
        node->kind = STRING;
        node->text = read_string(reader);
    } else {
        for (int word = 0; word < 3; word++) {
            size_t length = strlen(words[word]);
            if (reader->text.size - reader->at < length || memcmp(reader->text.data + reader->at, words[word], length))
                continue;
            node->kind = word ? BOOLEAN : NOTHING;
            node->integer = word == 2;
            reader->at += length;
            node->end = reader->at;
            return node;
        }
        read_number(reader, node);
    }
    node->end = reader->at;
    return node;
}

struct node *parse_json(struct zone *zone, struct bytes text, const char *where) {
    struct reader reader = {zone, text, 0, where};
    struct node *node = read_value(&reader, 0);
    if (peek_token(&reader) != -1) refuse(&reader, "the end");
    return node;
}

/* -- fields ------------------------------------------------------------------------------------ */

void of_kind(const struct node *node, enum kind kind, const char *where) {
    if (node->kind != kind)
        damaged("%s: %s%s%s given, %s expected", where, node->name ? node->name : "", node->name ? ": " : "",
                KINDS[node->kind], KINDS[kind]);
}

struct node *field(struct node *object, const char *name, enum kind kind, const char *where) {
    of_kind(object, OBJECT, where);
    for (struct node *node = object->first; node; node = node->next) {
        if (strcmp(node->name, name)) continue;
        node->used = true;
        if (node->kind == NOTHING) return NULL;
        of_kind(node, kind, where);
        return node;
    }
    return NULL;
}

struct node *needed(struct node *object, const char *name, enum kind kind, const char *where) {
    struct node *node = field(object, name, kind, where);
    if (!node) damaged("%s: no field '%s'", where, name);
    return node;
}

int64_t integer(struct node *object, const char *name, int64_t other, int64_t least, int64_t most, const char *where) {
    struct node *node = field(object, name, INTEGER, where);
    int64_t value = node ? node->integer : other;
    if (value < least || value > most)
        damaged("%s: %s %lld; expected %lld to %lld", where, name, (long long)value, (long long)least, (long long)most);
    return value;
}

const char *string(struct node *object, const char *name, const char *other, const char *where) {
    struct node *node = field(object, name, STRING, where);
    if (!node && !other) damaged("%s: no field '%s'", where, name);
    return node ? node->text : other;
}

void no_others(const struct node *object, const char *informative, const char *where) {
    for (const struct node *node = object->first; node; node = node->next) {
        const char *found = node->used || !*node->name ? NULL : strstr(informative, node->name);
        size_t length = strlen(node->name);
        bool known = found && (found == informative || found[-1] == ' ') && (!found[length] || found[length] == ' ');
        if (!node->used && !known) unsupported("%s: field '%s', which this version does not know", where, node->name);
    }
}
