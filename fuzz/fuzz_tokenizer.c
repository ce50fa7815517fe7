/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as tokenizer.json: opened or refused. One that opens encodes texts and decodes ids
 * without harm, and every id it gives is in its range. After a NUL byte the rest of the input is
 * the text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "text/chat.h"

static void check_text(const pl_tokenizer *t, const char *text, size_t size)
{
    for (unsigned flags = 0; flags < 8; flags++) {
        pl_ids ids = {0};
        char *back;
        size_t n;
        if (pl_tokenizer_encode(t, text, size, flags, &ids, NULL) != PLEACH_OK) {
            pl_free(ids.ids);
            continue;
        }
        for (size_t i = 0; i < ids.n; i++)
            if (ids.ids[i] < 0 || (size_t)ids.ids[i] >= pl_tokenizer_size(t)) abort();
        if (pl_tokenizer_decode(t, ids.ids, ids.n, true, &back, &n, NULL) == PLEACH_OK)
            pl_free(back);
        pl_free(ids.ids);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char config[] =
        "{\"chat_template\":\"{% for message in messages %}{{'<|im_start|>' + message['role'] + "
        "'\\\\n' + message['content'] + '<|im_end|>' + '\\\\n'}}{% endfor %}{% if "
        "add_generation_prompt %}{{ '<|im_start|>assistant\\\\n' }}{% endif %}\"}";
    const char *json = (const char *)data, *nul = size ? memchr(json, 0, size) : NULL;
    size_t json_size = nul ? (size_t)(nul - json) : size;
    const char *text = nul ? nul + 1 : "Aa 1\xc3\xa9 <s>\n\xf0\x9f\x98\x80\xff";
    size_t text_size = nul ? size - json_size - 1 : strlen(text);
    pl_tokenizer *t;
    pleach_error err;
    if (text_size > 4096 ||
        pl_tokenizer_open_json("input", json, json_size, config, sizeof config - 1, &t, &err))
        return 0;
    check_text(t, text, text_size);
    for (int32_t id = -1; id < 300; id++) {
        size_t n;
        const char *piece = pl_tokenizer_piece(t, id, &n);
        for (size_t i = 0; i < n; i++)
            if (piece[i] == 1) break; /* reads all of it */
    }
    pleach_message message = {"user", "x<|im_end|>"};
    pl_ids ids = {0};
    if (pl_chat_encode(t, &message, 1, &ids, &err) == PLEACH_OK && !ids.n) abort();
    pl_free(ids.ids);
    pl_tokenizer_close(t);
    return 0;
}
