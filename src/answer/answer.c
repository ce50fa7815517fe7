/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens to text of which no stop string can take anything away any more, and the list of pieces
 * that was made of it. */
#include <stdio.h>

#include "answer_parts.h"
#include "base/memory.h"

pleach_status pl_answer_open(const pl_tokenizer *t, const pl_answer_settings *s, pl_answer **out,
                             pleach_error *err)
{
    *out = NULL;
    pl_answer *a = pl_calloc(1, sizeof *a);
    if (!a) return pl_fail_memory(err, "an answer", sizeof *a);
    a->tokenizer = t;
    a->set = *s;
    pl_splitter_begin(&a->split, s);
    pleach_status status = pl_stops_open(s->stop, s->n_stop, &a->stops, err);
    if (status == PLEACH_OK)
        *out = a;
    else
        pl_answer_close(a);
    return status;
}

void pl_answer_close(pl_answer *a)
{
    if (!a) return;
    pl_stops_close(&a->stops);
    pl_free(a->utf8.text);
    pl_free(a->text.data);
    pl_free(a->out.data);
    pl_free(a->pieces);
    pl_free(a);
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Whole characters; looks for stop strings in them. */
static pleach_status add_characters(pl_answer *a, const char *s, size_t n, pleach_error *err)
{
    PL_TRY(pl_buffer_append(&a->text, s, n, err));
    for (size_t i = 0, before = a->text.size - n; i < n; i++) {
        size_t met = pl_stops_take(&a->stops, s[i]);
        if (!met) continue;
        a->text.size = before + i + 1 - met;
        a->stopped = true;
        break;
    }
    a->ready = a->text.size - (a->stopped ? 0 : pl_stops_waiting(&a->stops));
    return PLEACH_OK;
}

static pleach_status add_whole(pl_answer *a, pleach_error *err)
{
    pl_utf8_stream *u = &a->utf8;
    if (u->ready) PL_TRY(add_characters(a, u->text, u->ready, err));
    pl_utf8_shift(u);
    return PLEACH_OK;
}

static void drop_pieces(pl_answer *a)
{
    a->out.size = a->n_pieces = a->next = 0;
}

pleach_status pl_answer_take_text(pl_answer *a, const char *bytes, size_t size, bool *stopped,
                                  pleach_error *err)
{
    drop_pieces(a);
    if (!a->stopped) {
        PL_TRY(pl_utf8_push(&a->utf8, bytes, size, err));
        PL_TRY(add_whole(a, err));
        PL_TRY(pl_answer_split(a, false, err));
    }
    *stopped = a->stopped;
    return PLEACH_OK;
}

pleach_status pl_answer_take(pl_answer *a, int32_t id, bool *stopped, pleach_error *err)
{
    size_t size;
    const char *piece = pl_tokenizer_piece(a->tokenizer, id, &size);
    bool shown = !pl_tokenizer_is_special(a->tokenizer, id) ||
                 pl_splitter_knows(&a->set, piece, size) || pl_stops_has(&a->stops, piece, size);
    return pl_answer_take_text(a, piece, shown ? size : 0, stopped, err);
}

pleach_status pl_answer_finish(pl_answer *a, pleach_error *err)
{
    drop_pieces(a);
    if (!a->stopped) {
        PL_TRY(pl_utf8_finish(&a->utf8, err));
        PL_TRY(add_whole(a, err));
    }
    a->ready = a->text.size;
    return pl_answer_split(a, true, err);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

pleach_status pl_answer_emit(pl_answer *a, pl_answer_part part, const char *text, size_t size,
                             pleach_error *err)
{
    answer_piece *last = a->n_pieces ? &a->pieces[a->n_pieces - 1] : NULL;
    size_t from = a->out.size;
    if (!size) return PLEACH_OK;
    PL_TRY(pl_buffer_append(&a->out, text, size, err));
    if (last && last->part == part && part != PL_ANSWER_CALL) {
        last->size += size;
        return PLEACH_OK;
    }
    if (pl_grow((void **)&a->pieces, &a->capacity, a->n_pieces + 1, sizeof *a->pieces))
        return pl_fail_memory(err, "an answer", a->n_pieces);
    size_t call = a->split.calls ? a->split.calls - 1 : 0;
    a->pieces[a->n_pieces++] = (answer_piece){part, call, from, size};
    return PLEACH_OK;
}

pleach_status pl_answer_emit_escaped(pl_answer *a, const char *text, size_t size, pleach_error *err)
{
    static const char plain[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
    size_t done = 0;
    for (size_t i = 0; i < size; i++) {
        char escape[8];
        const char *known = text[i] ? strchr(plain, text[i]) : NULL;
        if (!known && (unsigned char)text[i] >= 0x20) continue;
        PL_TRY(pl_answer_emit(a, PL_ANSWER_ARGUMENTS, text + done, i - done, err));
        if (known)
            snprintf(escape, sizeof escape, "\\%c", letters[known - plain]);
        else
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned char)text[i]);
        PL_TRY(pl_answer_emit(a, PL_ANSWER_ARGUMENTS, escape, strlen(escape), err));
        done = i + 1;
    }
    return pl_answer_emit(a, PL_ANSWER_ARGUMENTS, text + done, size - done, err);
}

pleach_status pl_answer_begin_call(pl_answer *a, const char *name, pleach_error *err)
{
    a->split.calls++;
    a->split.shown = true;
    return pl_answer_emit(a, PL_ANSWER_CALL, name, strlen(name), err);
}

bool pl_answer_next(pl_answer *a, pl_answer_piece *piece)
{
    if (a->next == a->n_pieces) return false;
    const answer_piece *p = &a->pieces[a->next++];
    *piece = (pl_answer_piece){p->part, p->call, a->out.data + p->from, p->size};
    return true;
}

size_t pl_answer_calls(const pl_answer *a)
{
    return a->split.calls;
}
