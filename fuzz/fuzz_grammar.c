/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a grammar, or as a JSON schema: refused, or matched against texts, with masks that
 * agree with taking each token. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"

static void match(const pl_grammar *g, const pl_token_list *tokens, const char *const *pieces,
                  const size_t *sizes, size_t n)
{
    pl_matcher *m, *alone;
    uint32_t allowed[1];
    if (pl_matcher_open(g, &m, NULL) != PLEACH_OK) return;
    if (pl_matcher_open(g, &alone, NULL) == PLEACH_OK) {
        size_t taken[24];
        for (size_t step = 0; step < 24; step++) {
            size_t next = n;
            pl_matcher_mask(m, tokens, allowed);
            for (size_t i = 0; i < n; i++) {
                pl_matcher_restart(alone);
                for (size_t k = 0; k < step; k++)
                    if (!pl_matcher_take(alone, pieces[taken[k]], sizes[taken[k]])) abort();
                if (pl_matcher_take(alone, pieces[i], sizes[i]) != (allowed[0] >> i & 1)) abort();
                if (allowed[0] >> i & 1) next = next == n || (i + step) % 3 == 0 ? i : next;
            }
            if (next == n) break;
            taken[step] = next;
            if (!pl_matcher_take(m, pieces[next], sizes[next])) abort();
        }
        pl_matcher_close(alone);
    }
    pl_matcher_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const pieces[] = {"{",
                                         "}",
                                         "[",
                                         "]",
                                         "\"",
                                         ":",
                                         ",",
                                         " ",
                                         "\n",
                                         "a",
                                         "b",
                                         "abc",
                                         "0",
                                         "1",
                                         "-12",
                                         "true",
                                         "null",
                                         "\xc3",
                                         "\xa9",
                                         "\"a\":",
                                         "\\",
                                         "u00e9",
                                         "\xf0\x9f\x98\x80",
                                         "e",
                                         "."};
    enum { N = sizeof pieces / sizeof *pieces };
    static pl_token_list *tokens;
    static size_t sizes[N];
    pl_grammar *g;
    if (!tokens) {
        for (size_t i = 0; i < N; i++) sizes[i] = strlen(pieces[i]);
        if (pl_token_list_make(pieces, sizes, N, &tokens, NULL) != PLEACH_OK) abort();
    }
    if (pl_grammar_parse((const char *)data, size, &g, NULL) == PLEACH_OK)
        match(g, tokens, pieces, sizes, N);
    pl_grammar_close(g);
    json_t *schema = json_loadb((const char *)data, size, JSON_DECODE_ANY, NULL);
    if (schema && pl_grammar_from_schema(schema, &g, NULL) == PLEACH_OK) {
        match(g, tokens, pieces, sizes, N);
        pl_grammar_close(g);
    }
    json_decref(schema);
    return 0;
}
