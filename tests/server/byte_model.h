/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of toy size whose tokens are the bytes and ChatML's control tokens, for the server's
 * tests in C and its fuzz target. */
#ifndef PLEACH_TESTS_SERVER_BYTE_MODEL_H
#define PLEACH_TESTS_SERVER_BYTE_MODEL_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "pleach/model.h"
#include "text/byte_tokens.h"
#include "text/utf8.h"

#define BYTE_MODEL_TEMPLATE                                                                        \
    "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\\n' + m['content'] + "                \
    "'<|im_end|>\\n'}}"                                                                            \
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\\n{% endif %}"

static inline json_t *byte_tokenizer(void)
{
    json_t *vocabulary = json_object();
    for (unsigned byte = 0; byte < 256; byte++) {
        char letter[5] = "";
        pl_utf8_encode(pl_byte_letter(byte), letter);
        json_object_set_new(vocabulary, letter, json_integer(byte));
    }
    return json_pack("{s:[{s:i, s:s, s:b}, {s:i, s:s, s:b}], s:{s:s, s:b, s:b}, s:{s:s}, s:{s:s, "
                     "s:[], s:o}}",
                     "added_tokens", "id", 256, "content", "<|im_start|>", "special", 1, "id", 257,
                     "content", "<|im_end|>", "special", 1, "pre_tokenizer", "type", "ByteLevel",
                     "add_prefix_space", 0, "use_regex", 1, "decoder", "type", "ByteLevel", "model",
                     "type", "BPE", "merges", "vocab", vocabulary);
}

static inline void byte_model_write(const char *folder, const char *name, json_t *value)
{
    char *path = pl_path_join(folder, name);
    if (!value || !path || json_dump_file(value, path, 0)) abort();
    json_decref(value);
    pl_free(path);
}

/* checkpoint: folder of llama-tied. Opened files stay mapped when their names are gone. */
static inline pleach_model *open_byte_model(const char *checkpoint)
{
    static const char *const names[] = {"config.json", "model.safetensors", "tokenizer.json",
                                        "tokenizer_config.json"};
    char folder[] = "/tmp/pleach-bytes-XXXXXX", target[600], link[600];
    pleach_model_settings settings;
    pleach_model *m;
    pleach_error err;
    if (!mkdtemp(folder)) abort();
    for (int i = 0; i < 2; i++) {
        snprintf(target, sizeof target, "%s/%s", checkpoint, names[i]);
        snprintf(link, sizeof link, "%s/%s", folder, names[i]);
        if (symlink(target, link)) abort();
    }
    byte_model_write(folder, names[2], byte_tokenizer());
    byte_model_write(
        folder, names[3],
        json_pack("{s:s, s:s}", "eos_token", "<|im_end|>", "chat_template", BYTE_MODEL_TEMPLATE));
    pleach_model_settings_defaults(&settings);
    settings.threads = 1;
    if (pleach_model_open(folder, &settings, &m, &err) != PLEACH_OK) {
        fprintf(stderr, "%s\n", err.message);
        abort();
    }
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        snprintf(link, sizeof link, "%s/%s", folder, names[i]);
        unlink(link);
    }
    rmdir(folder);
    return m;
}

#endif
