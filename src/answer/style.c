/* SPDX-License-Identifier: Apache-2.0 */
#include "style.h"

#include <string.h>

#include "base/compiler.h"
#include "markers.h"

static bool mentions(const char *text, const char *what)
{
    return text && strstr(text, what);
}

pl_tool_style pl_tools_style(const char *chat_template)
{
    const char *c = chat_template;
    if (mentions(c, PL_CALL) && mentions(c, PL_FUNCTION)) return PL_TOOLS_XML;
    if (mentions(c, PL_CALL)) return PL_TOOLS_HERMES;
    if (mentions(c, PL_CALLS_MISTRAL)) return PL_TOOLS_MISTRAL;
    if (mentions(c, "<|start_header_id|>") && pl_tools_in_template(c)) return PL_TOOLS_LLAMA;
    return PL_TOOLS_HERMES;
}

bool pl_tools_in_template(const char *chat_template)
{
    return mentions(chat_template, "tools");
}

enum { TAIL = 64 }; /* bytes of the prompt's end that hold an opened <think> and blanks behind it */

/* The last bytes of the prompt, special tokens as their literals. */
static size_t prompt_tail(const pl_tokenizer *t, const int32_t *ids, size_t n, char tail[TAIL])
{
    size_t used = 0;
    while (n && used < TAIL) {
        size_t size, part;
        const char *piece = pl_tokenizer_piece(t, ids[--n], &size);
        part = PL_MIN(size, TAIL - used);
        used += part;
        memcpy(tail + TAIL - used, piece + size - part, part);
    }
    return used;
}

void pl_answer_style(const pl_tokenizer *t, const int32_t *prompt, size_t n, pl_answer_settings *s)
{
    const char *chat_template = pl_tokenizer_chat_template(t);
    char tail[TAIL];
    size_t size = prompt_tail(t, prompt, n, tail), think = strlen(PL_THINK);
    const char *text = tail + TAIL - size;
    while (size && strchr(" \t\r\n", text[size - 1])) size--;
    s->tools = pl_tools_style(chat_template);
    s->in_reasoning = size >= think && !memcmp(text + size - think, PL_THINK, think);
    s->reasoning = s->in_reasoning || mentions(chat_template, PL_THINK) ||
                   mentions(chat_template, PL_THINK_END); /* which some only cut off */
}
