/* SPDX-License-Identifier: Apache-2.0
 *
 * Content, reasoning and calls told apart in a text that comes piece by piece. */
#ifndef PL_ANSWER_SPLIT_H
#define PL_ANSWER_SPLIT_H

#include "answer.h"

typedef struct pl_splitter {
    size_t calls; /* that began */
} pl_splitter;

void pl_splitter_begin(pl_splitter *s, const pl_answer_settings *set);
/* A special token that is a marker. */
bool pl_splitter_knows(const pl_answer_settings *set, const char *literal, size_t size);

#endif
