/* SPDX-License-Identifier: Apache-2.0
 *
 * Multiple-choice items from lines of JSON. */
#ifndef PL_RUNTIME_TASK_ITEMS_H
#define PL_RUNTIME_TASK_ITEMS_H

#include <jansson.h>
#include <stddef.h>

#include "base/error.h"

enum { PL_MAX_CHOICES = 64 };

typedef struct pl_task_item {
    size_t line;     /* 1, 2, .. */
    char *context;   /* as the model sees it, without blanks at its end */
    size_t n_choices, answer;
    char *text[PL_MAX_CHOICES];    /* context and choice together */
    size_t bytes[PL_MAX_CHOICES];  /* of the choice alone */
} pl_task_item;

/* All items of the lines; blank lines are passed over. A bad line is refused by its number. */
pleach_status pl_task_items_read(const char *lines, size_t size, pl_task_item **items, size_t *n,
                                 pleach_error *err);
void pl_task_items_free(pl_task_item *items, size_t n);

#endif
