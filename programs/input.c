/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading texts and token ids. The safetensors reader here knows just enough for a list of ids;
 * models go through the library. */
#include "input.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "console.h"

#define LARGEST_INPUT ((size_t)1 << 30)

static int read_stream(FILE *f, const char *name, char **text, size_t *size)
{
    char *buffer = NULL;
    size_t used = 0, capacity = 0;
    for (;;) {
        bool too_large = used > LARGEST_INPUT;
        if (too_large || pl_grow((void **)&buffer, &capacity, used + 65537, 1) != 0) {
            pl_free(buffer);
            return too_large ? fail("%s: more than the %zu bytes that are read at most", name,
                                    LARGEST_INPUT)
                             : fail("out of memory: %s", name);
        }
        size_t got = fread(buffer + used, 1, capacity - used - 1, f);
        used += got;
        if (got == 0) break;
    }
    if (ferror(f)) {
        pl_free(buffer);
        return interrupted() ? EXIT_INTERRUPTED : fail("cannot read %s: %s", name, strerror(errno));
    }
    buffer[used] = 0;
    *text = buffer;
    *size = used;
    return EXIT_OK;
}

int read_input(const char *path, char **text, size_t *size)
{
    if (strcmp(path, "-") == 0) return read_stream(stdin, "standard input", text, size);
    FILE *f = fopen(path, "rbe");
    if (!f) return fail("cannot open %s: %s", path, strerror(errno));
    int status = read_stream(f, path, text, size);
    fclose(f);
    return status;
}

static int add_id(const char *where, int64_t id, id_list *list)
{
    if (pl_grow((void **)&list->ids, &list->capacity, list->n + 1, sizeof list->ids[0]) != 0)
        return fail("out of memory: the ids of %s", where);
    list->ids[list->n++] = (int32_t)id;
    return EXIT_OK;
}

int parse_ids(const char *where, const char *text, id_list *list)
{
    static const char separators[] = " \t\r\n,";
    int status = EXIT_OK;
    for (text += strspn(text, separators); *text && status == EXIT_OK;
         text += strspn(text, separators)) {
        size_t size = strcspn(text, separators), digits = strspn(text, "0123456789");
        int64_t id = digits == size && size <= 10 ? strtoll(text, NULL, 10) : -1;
        if (id < 0 || id > INT32_MAX)
            return fail("%s: expected a token id, found \"%.*s\"", where,
                        (int)(size < 40 ? size : 40), text);
        status = add_id(where, id, list);
        text += size;
    }
    return status;
}

/* ---- safetensors --------------------------------------------------------------------------- */

static bool is_i32(json_t *entry)
{
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    return type && strcmp(type, "I32") == 0;
}

static json_t *find_ids_tensor(json_t *header)
{
    const char *name;
    json_t *entry, *only = NULL;
    size_t n = 0;
    json_object_foreach(header, name, entry)
    {
        if (!is_i32(entry)) continue;
        if (strcmp(name, "ids") == 0 || strcmp(name, "input_ids") == 0) return entry;
        only = entry;
        n++;
    }
    return n == 1 ? only : NULL;
}

static int take_ids(const char *path, json_t *entry, const unsigned char *data, size_t size,
                    id_list *list)
{
    json_t *offsets = json_object_get(entry, "data_offsets");
    json_int_t begin = json_integer_value(json_array_get(offsets, 0));
    json_int_t end = json_integer_value(json_array_get(offsets, 1));
    if (json_array_size(offsets) != 2 || begin < 0 || end < begin || (uint64_t)end > size ||
        (end - begin) % 4)
        return fail("%s: expected offsets of an I32 tensor within %zu bytes, found %lld and %lld",
                    path, size, (long long)begin, (long long)end);
    int status = EXIT_OK;
    for (json_int_t at = begin; at < end && status == EXIT_OK; at += 4) {
        const unsigned char *b = data + at;
        uint32_t id = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
        if (id > INT32_MAX)
            return fail("%s: expected token ids, found %lld", path, (long long)id - (1ll << 32));
        status = add_id(path, id, list);
    }
    return status;
}

static int parse_ids_tensor(const char *path, const char *file, size_t size, id_list *list)
{
    uint64_t header_size = 0;
    json_error_t error;
    for (int i = 7; i >= 0; i--) header_size = header_size << 8 | (unsigned char)file[i];
    if (header_size > size - 8)
        return fail("%s: expected a header within %zu bytes, found one of %llu", path, size,
                    (unsigned long long)header_size);
    json_t *header = json_loadb(file + 8, (size_t)header_size, JSON_REJECT_DUPLICATES, &error);
    if (!header) return fail("%s: malformed header: %s", path, error.text);
    json_t *entry = find_ids_tensor(header);
    size_t data = 8 + (size_t)header_size;
    int status = entry
                     ? take_ids(path, entry, (const unsigned char *)file + data, size - data, list)
                     : fail("%s: expected one I32 tensor, or one called \"ids\"", path);
    json_decref(header);
    return status;
}

int read_ids(const char *path, id_list *list)
{
    char *text = NULL;
    size_t size;
    int status = read_input(path, &text, &size);
    if (status != EXIT_OK) return status;
    if (size > 8 && text[8] == '{')
        status = parse_ids_tensor(path, text, size, list);
    else if (strlen(text) != size)
        status = fail("%s: expected token ids as text", path);
    else
        status = parse_ids(path, text, list);
    if (status == EXIT_OK && list->n == 0)
        status = fail("%s: expected at least one token id", path);
    pl_free(text);
    return status;
}
