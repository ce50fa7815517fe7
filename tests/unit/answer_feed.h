/* SPDX-License-Identifier: Apache-2.0
 *
 * Feeding an answer, and its pieces written as one line: "C:" before content, "R:" before
 * reasoning, "F:" before the name of a function, "A:" before its arguments. */
#ifndef PL_TESTS_ANSWER_FEED_H
#define PL_TESTS_ANSWER_FEED_H

#include <stdlib.h>
#include <string.h>

#include "answer/answer.h"
#include "text/buffer.h"

typedef struct answer_feed {
    pl_answer *answer;
    pl_buffer line;
    int last; /* part that the line ends with; -1: none */
    bool stopped;
} answer_feed;

static inline void feed_must(bool good)
{
    if (!good) abort();
}

static inline void feed_piece(answer_feed *f, const pl_answer_piece *p)
{
    static const char *const names[] = {"C:", "R:", "F:", "A:"};
    if (f->last != (int)p->part) feed_must(!pl_buffer_append(&f->line, names[p->part], 2, NULL));
    feed_must(!pl_buffer_append(&f->line, p->text, p->size, NULL));
    f->last = (int)p->part;
}

static inline void feed_read(answer_feed *f)
{
    pl_answer_piece p;
    while (pl_answer_next(f->answer, &p)) {
        feed_must(p.size > 0);
        feed_piece(f, &p);
    }
}

static inline answer_feed feed_open(const pl_answer_settings *s)
{
    answer_feed f = {.last = -1};
    feed_must(!pl_answer_open(NULL, s, &f.answer, NULL));
    return f;
}

static inline void feed_take(answer_feed *f, const char *text, size_t size)
{
    feed_must(!pl_answer_take_text(f->answer, text, size, &f->stopped, NULL));
    feed_read(f);
}

/* The line, NUL-terminated; pl_free. */
static inline char *feed_end(answer_feed *f)
{
    feed_must(!pl_answer_finish(f->answer, NULL));
    feed_read(f);
    feed_must(!pl_buffer_append(&f->line, "", 1, NULL));
    pl_answer_close(f->answer);
    return f->line.data;
}

/* A text cut at two places, 0 <= a <= b <= size. */
static inline char *feed_cut(const pl_answer_settings *s, const char *text, size_t size, size_t a,
                             size_t b)
{
    answer_feed f = feed_open(s);
    feed_take(&f, text, a);
    feed_take(&f, text + a, b - a);
    feed_take(&f, text + b, size - b);
    return feed_end(&f);
}

static inline char *feed_bytes(const pl_answer_settings *s, const char *text, size_t size)
{
    answer_feed f = feed_open(s);
    for (size_t i = 0; i < size; i++) feed_take(&f, text + i, 1);
    return feed_end(&f);
}

#endif
