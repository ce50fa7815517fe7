/* SPDX-License-Identifier: Apache-2.0
 *
 * Prompt in, text out. */
#include "answer.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "console.h"

enum { PIECE = 64 }; /* tokens between two looks at Ctrl-C */

/* Brings the session to all of the prompt but its last token. */
static pleach_status feed_prompt(pleach_session *s, const int32_t *prompt, size_t n, answer *a,
                                 pleach_error *err)
{
    const int32_t *held;
    size_t have = pleach_session_ids(s, &held), same = 0;
    while (same < have && same + 1 < n && held[same] == prompt[same]) same++;
    PL_TRY(pleach_session_truncate(s, same, err));
    a->stats.cached_tokens = same;
    while (same + 1 < n && !interrupted()) {
        size_t piece = PL_MIN(n - 1 - same, PIECE);
        PL_TRY(pleach_session_feed(s, prompt + same, piece, NULL, err));
        same += piece;
    }
    return PLEACH_OK;
}

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
    PL_FAIL_IF(n == 0, err, PLEACH_ERR_ARGUMENT, "expected a prompt of at least one token");
    PL_FAIL_IF(n >= context, err, PLEACH_ERR_LIMIT,
               "the prompt has %zu tokens and the context holds %zu: no room for an answer", n,
               context);
    double start = seconds_now();
    PL_TRY(feed_prompt(s, prompt, n, a, err));
    double fed = seconds_now() - start;
    size_t cached = a->stats.cached_tokens;
    a->stats.finish = PLEACH_FINISH_CANCELLED;
    if (!interrupted())
        PL_TRY(pleach_generate(s, prompt, n, settings, take_text, &out, &a->stats, err));
    a->stats.cached_tokens = cached;
    a->stats.prompt_tokens = n;
    a->stats.prompt_seconds += fed;
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
    fprintf(stderr, "prompt: %zu tokens, %zu of them cached, %.1f tokens/s; ", s->prompt_tokens,
            s->cached_tokens, rate(computed, s->prompt_seconds));
    fprintf(stderr, "answer: %zu tokens, %.1f tokens/s\n", s->new_tokens,
            rate(s->new_tokens, s->generation_seconds));
}
