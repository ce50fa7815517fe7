/* SPDX-License-Identifier: Apache-2.0
 *
 * The insides of an answer: answer.c makes decided text of tokens and keeps the pieces, split.c
 * tells content, reasoning and calls apart. */
#ifndef PL_ANSWER_PARTS_H
#define PL_ANSWER_PARTS_H

#include "answer.h"
#include "split.h"
#include "stop.h"
#include "text/buffer.h"
#include "text/utf8_stream.h"

typedef struct answer_piece {
    pl_answer_part part;
    size_t call, from, size; /* in `out` */
} answer_piece;

struct pl_answer {
    const pl_tokenizer *tokenizer;
    pl_answer_settings set;
    pl_stops stops;
    bool stopped;
    pl_utf8_stream utf8;
    pl_buffer text; /* characters that are not split yet */
    size_t ready;   /* of them, those that belong to no stop string whatever comes */
    pl_splitter split;

    pl_buffer out;
    answer_piece *pieces;
    size_t n_pieces, next, capacity;
};

/* A piece, or more of the last one. */
pleach_status pl_answer_emit(pl_answer *a, pl_answer_part part, const char *text, size_t size,
                             pleach_error *err);

/* The same of text that becomes a part of a JSON string. */
pleach_status pl_answer_emit_escaped(pl_answer *a, const char *text, size_t size,
                                     pleach_error *err);
/* A call of this function begins. */
pleach_status pl_answer_begin_call(pl_answer *a, const char *name, pleach_error *err);

/* Splits what is ready. `last`: no more comes. */
pleach_status pl_answer_split(pl_answer *a, bool last, pleach_error *err);

#endif
