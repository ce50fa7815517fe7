/* SPDX-License-Identifier: Apache-2.0
 *
 * Prompt in, text out. */
#include "answer.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "console.h"

typedef struct stream {
    answer *answer;
    bool memory_failed;
} stream;

static int take_text(void *user, const char *text, size_t size)
{
    stream *out = user;
    answer *a = out->answer;
    if (pl_grow((void **)&a->text, &a->capacity, a->size + size + 1, 1) != 0) {
        out->memory_failed = true;
        return 1;
    }
    memcpy(a->text + a->size, text, size);
    a->size += size;
    a->text[a->size] = 0;
    if (size && !a->silent && write_output(text, size) != EXIT_OK) return 1;
    return interrupted();
}

pleach_status answer_prompt(pleach_session *s, size_t context, const int32_t *prompt, size_t n,
                            const pleach_generation *settings, answer *a, pleach_error *err)
{
    stream out = {.answer = a};
    PL_FAIL_IF(n >= context, err, PLEACH_ERR_LIMIT,
               "the prompt has %zu tokens and the context holds %zu: no room for an answer", n,
               context);
    PL_TRY(pleach_generate(s, prompt, n, settings, take_text, &out, &a->stats, err));
    a->stopped = interrupted();
    PL_FAIL_IF(out.memory_failed, err, PLEACH_ERR_MEMORY, "out of memory: the answer");
    return PLEACH_OK;
}

static double rate(size_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

void answer_print_stats(const answer *a)
{
    const pleach_generation_stats *s = &a->stats;
    size_t computed = s->prompt_tokens - s->cached_tokens;
    fflush(stdout); /* the end of the answer's line, where both streams are one */
    fprintf(stderr, "prompt: %zu tokens, %zu of them cached, %.1f tokens/s; ", s->prompt_tokens,
            s->cached_tokens, rate(computed, s->prompt_seconds));
    fprintf(stderr, "answer: %zu tokens, %.1f tokens/s\n", s->new_tokens,
            rate(s->new_tokens, s->generation_seconds));
}
