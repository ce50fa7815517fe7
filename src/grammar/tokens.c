/* SPDX-License-Identifier: Apache-2.0 */
#include "tokens.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "text/tokenizer.h"

static int compare(const void *a_, const void *b_)
{
    const listed_token *a = a_, *b = b_;
    int order = memcmp(a->bytes, b->bytes, PL_MIN(a->size, b->size));
    if (order) return order;
    if (a->size != b->size) return a->size < b->size ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

static size_t count_bytes(const size_t *sizes, size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) bytes += sizes[i] <= PL_LONGEST_TOKEN ? sizes[i] : 0;
    return bytes;
}

static void fill(pl_token_list *l, const char *const *pieces, const size_t *sizes, size_t n)
{
    char *at = l->bytes;
    for (size_t i = 0; i < n; i++) {
        if (!sizes[i] || sizes[i] > PL_LONGEST_TOKEN) continue;
        memcpy(at, pieces[i], sizes[i]);
        l->tokens[l->n++] =
            (listed_token){.bytes = at, .id = (uint32_t)i, .size = (uint16_t)sizes[i]};
        at += sizes[i];
    }
    qsort(l->tokens, l->n, sizeof *l->tokens, compare);
    for (size_t i = 1; i < l->n; i++) {
        const listed_token *before = &l->tokens[i - 1];
        listed_token *t = &l->tokens[i];
        uint16_t most = PL_MIN(before->size, t->size);
        while (t->shared < most && t->bytes[t->shared] == before->bytes[t->shared]) t->shared++;
    }
}

pleach_status pl_token_list_make(const char *const *pieces, const size_t *sizes, size_t n,
                                 pl_token_list **out, pleach_error *err)
{
    *out = NULL;
    pl_token_list *l = pl_calloc(1, sizeof *l);
    if (l) {
        l->n_ids = n;
        l->tokens = pl_alloc(n, sizeof *l->tokens);
        l->bytes = pl_alloc(count_bytes(sizes, n), 1);
    }
    if (!l || !l->tokens || !l->bytes) {
        pl_token_list_close(l);
        return pl_fail_memory(err, "a vocabulary's order", n * sizeof(listed_token));
    }
    fill(l, pieces, sizes, n);
    *out = l;
    return PLEACH_OK;
}

pleach_status pl_token_list_open(const pl_tokenizer *t, pl_token_list **out, pleach_error *err)
{
    size_t n = pl_tokenizer_size(t);
    const char **pieces = pl_alloc(n, sizeof *pieces);
    size_t *sizes = pl_alloc(n, sizeof *sizes);
    pleach_status status = PLEACH_OK;
    *out = NULL;
    if (!pieces || !sizes) status = pl_fail_memory(err, "a vocabulary's order", n * sizeof *sizes);
    for (size_t i = 0; status == PLEACH_OK && i < n; i++) {
        pieces[i] = pl_tokenizer_piece(t, (int32_t)i, &sizes[i]);
        if (pl_tokenizer_is_special(t, (int32_t)i)) sizes[i] = 0;
    }
    if (status == PLEACH_OK) status = pl_token_list_make(pieces, sizes, n, out, err);
    pl_free(pieces);
    pl_free(sizes);
    return status;
}

void pl_token_list_close(pl_token_list *l)
{
    if (!l) return;
    pl_free(l->tokens);
    pl_free(l->bytes);
    pl_free(l);
}
