/* SPDX-License-Identifier: Apache-2.0
 *
 * Each string by the automaton of Knuth, Morris and Pratt (1977): a byte costs constant time on
 * average, and the state is the length of what has to wait. */
#include "stop.h"

#include <string.h>

#include "base/memory.h"

static size_t step(const struct pl_stop_string *s, size_t at, char byte)
{
    while (at && s->text[at] != byte) at = s->back[at];
    return at + (s->text[at] == byte);
}

static pleach_status prepare(struct pl_stop_string *s, pleach_error *err)
{
    s->back = pl_calloc(s->size + 1, sizeof *s->back);
    if (!s->back) return pl_fail_memory(err, "a stop string", s->size);
    for (size_t i = 1; i < s->size; i++) s->back[i + 1] = step(s, s->back[i], s->text[i]);
    return PLEACH_OK;
}

pleach_status pl_stops_open(const char *const *texts, size_t n, pl_stops *out, pleach_error *err)
{
    *out = (pl_stops){.list = pl_calloc(n, sizeof *out->list)};
    if (!out->list) return pl_fail_memory(err, "stop strings", n);
    for (size_t i = 0; i < n; i++) {
        if (!texts[i][0]) continue;
        struct pl_stop_string *s = &out->list[out->n++];
        *s = (struct pl_stop_string){.text = texts[i], .size = strlen(texts[i])};
        PL_TRY(prepare(s, err));
    }
    return PLEACH_OK;
}

void pl_stops_close(pl_stops *s)
{
    for (size_t i = 0; i < s->n; i++) pl_free(s->list[i].back);
    pl_free(s->list);
    *s = (pl_stops){0};
}

size_t pl_stops_take(pl_stops *s, char byte)
{
    size_t met = 0;
    for (size_t i = 0; i < s->n; i++) {
        struct pl_stop_string *one = &s->list[i];
        one->at = step(one, one->at, byte);
        if (one->at < one->size) continue;
        met = PL_MAX(met, one->size);
        one->at = one->back[one->at];
    }
    return met;
}

size_t pl_stops_waiting(const pl_stops *s)
{
    size_t most = 0;
    for (size_t i = 0; i < s->n; i++) most = PL_MAX(most, s->list[i].at);
    return most;
}

bool pl_stops_has(const pl_stops *s, const char *text, size_t size)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].size == size && !memcmp(s->list[i].text, text, size)) return true;
    return false;
}
