/* SPDX-License-Identifier: Apache-2.0 */
#include "split.h"

#include "answer_parts.h"

void pl_splitter_begin(pl_splitter *s, const pl_answer_settings *set)
{
    (void)set;
    *s = (pl_splitter){0};
}

bool pl_splitter_knows(const pl_answer_settings *set, const char *literal, size_t size)
{
    (void)set;
    (void)literal;
    (void)size;
    return false;
}

pleach_status pl_answer_split(pl_answer *a, bool last, pleach_error *err)
{
    (void)last;
    if (!a->ready) return PLEACH_OK;
    PL_TRY(pl_answer_emit(a, PL_ANSWER_CONTENT, a->text.data, a->ready, err));
    memmove(a->text.data, a->text.data + a->ready, a->text.size - a->ready);
    a->text.size -= a->ready;
    a->ready = 0;
    return PLEACH_OK;
}
