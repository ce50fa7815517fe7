/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading tests/golden/text, and tokenizers made of a file and a patch. */
#ifndef PL_TESTS_TEXT_GOLDEN_H
#define PL_TESTS_TEXT_GOLDEN_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "text/tokenizer.h"

static inline char *text_read(const char *name, size_t *size)
{
    char path[600], *text;
    pleach_error err;
    size_t n;
    snprintf(path, sizeof path, "%s/golden/text/%s", PLEACH_TEST_DATA, name);
    if (pl_read_file(path, (size_t)1 << 26, &text, &n, &err)) {
        fprintf(stderr, "%s\n", err.message);
        abort();
    }
    if (size) *size = n;
    return text;
}

static inline json_t *text_json(const char *name)
{
    size_t size;
    char *text = text_read(name, &size);
    json_t *j = json_loadb(text, size, JSON_ALLOW_NUL, NULL);
    pl_free(text);
    if (!j) abort();
    return j;
}

/* Merges "a b" as ["a", "b"]. */
static inline json_t *merge_pairs(const json_t *merges)
{
    json_t *pairs = json_array();
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const char *s = json_string_value(json_array_get(merges, i)), *space = strchr(s, ' ');
        json_array_append_new(pairs, json_pack("[s%, s]", s, (size_t)(space - s), space + 1));
    }
    return pairs;
}

/* The keys of patch replace those of root; in "model" key by key; "added_tokens" are appended. */
static inline void apply_patch(json_t *root, json_t *patch)
{
    const char *key;
    json_t *value;
    json_object_foreach (patch, key, value) {
        if (!strcmp(key, "added_tokens")) {
            json_array_extend(json_object_get(root, key), value);
        } else if (!strcmp(key, "model")) {
            json_t *model = json_object_get(root, key), *merges = json_object_get(value, "merges");
            json_object_update(model, value);
            if (json_is_string(merges)) abort();
        } else {
            json_object_set(root, key, value);
        }
    }
}

static inline pleach_status open_json(const json_t *root, const json_t *config, pl_tokenizer **out,
                                      pleach_error *err)
{
    char *text = json_dumps(root, JSON_COMPACT), *settings = config ? json_dumps(config, 0) : NULL;
    pleach_status status = pl_tokenizer_open_json("test", text, strlen(text), settings,
                                                  settings ? strlen(settings) : 0, out, err);
    free(text);
    free(settings);
    return status;
}

#endif
