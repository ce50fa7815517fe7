/* SPDX-License-Identifier: Apache-2.0 */
#include "keys.h"

#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/memory.h"

enum { MAX_KEY = 512, MAX_KEY_FILE = 1 << 20 };

static pleach_status add_key(pl_keys *keys, const char *line, size_t size, const char *path,
                             pleach_error *err)
{
    PL_FAIL_IF(size > MAX_KEY, err, PLEACH_ERR_FORMAT, "%s: a key of more than %d bytes", path,
               MAX_KEY);
    for (size_t i = 0; i < size; i++)
        PL_FAIL_IF(line[i] <= ' ' || line[i] > '~', err, PLEACH_ERR_FORMAT,
                   "%s: key %zu has a character that no header can hold", path, keys->n + 1);
    char *key = pl_alloc(size + 1, 1);
    if (!key || pl_grow((void **)&keys->keys, &keys->capacity, keys->n + 1, sizeof *keys->keys)) {
        pl_free(key);
        return pl_fail_memory(err, "API keys", size);
    }
    memcpy(key, line, size);
    key[size] = 0;
    keys->keys[keys->n++] = key;
    return PLEACH_OK;
}

static pleach_status add_lines(pl_keys *keys, const char *text, const char *path, pleach_error *err)
{
    for (const char *line = text; *line; line += strspn(line, "\n")) {
        size_t size = strcspn(line, "\n"), blank = strspn(line, " \t\r");
        const char *begin = line + blank, *end = line + size;
        while (end > begin && strchr(" \t\r", end[-1])) end--;
        if (begin < end && *begin != '#')
            PL_TRY(add_key(keys, begin, (size_t)(end - begin), path, err));
        line += size;
    }
    PL_FAIL_IF(!keys->n, err, PLEACH_ERR_FORMAT, "%s: expected an API key on a line of its own",
               path);
    return PLEACH_OK;
}

pleach_status pl_keys_read(const char *path, pl_keys *keys, pleach_error *err)
{
    char *text;
    size_t size;
    *keys = (pl_keys){0};
    PL_TRY(pl_read_file(path, MAX_KEY_FILE, &text, &size, err));
    pleach_status status = add_lines(keys, text, path, err);
    pl_free(text);
    return status;
}

void pl_keys_free(pl_keys *keys)
{
    for (size_t i = 0; i < keys->n; i++) pl_free(keys->keys[i]);
    pl_free(keys->keys);
    *keys = (pl_keys){0};
}

/* As many steps for every key of one length. */
static bool same(const char *key, const char *given, size_t size)
{
    size_t length = strlen(key);
    unsigned char difference = length != size;
    for (size_t i = 0; i < size; i++)
        difference |= (unsigned char)(key[length ? i % length : 0] ^ given[i]);
    return difference == 0;
}

bool pl_keys_admit(const pl_keys *keys, const char *authorization)
{
    static const char scheme[] = "Bearer ";
    bool admitted = false;
    if (keys->n == 0) return true;
    if (!authorization || strncasecmp(authorization, scheme, sizeof scheme - 1) != 0) return false;
    const char *given = authorization + sizeof scheme - 1;
    given += strspn(given, " ");
    size_t size = strlen(given);
    if (size < 1 || size > MAX_KEY) return false;
    for (size_t i = 0; i < keys->n; i++) admitted |= same(keys->keys[i], given, size);
    return admitted;
}
