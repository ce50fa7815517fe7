/* SPDX-License-Identifier: Apache-2.0
 *
 * Integers between bounds, digit by digit: numbers of as many digits as a bound are below (above)
 * it where they first differ. */
#include "schema_number.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"

static const expression *digit(rules *r, char first, char last)
{
    const range one = {(uint32_t)first, (uint32_t)last};
    return first > last ? NULL : grammar_class(r, &one, 1);
}

static const expression *either(rules *r, const expression *a, const expression *b)
{
    return a && b ? grammar_either(r, a, b) : a ? a : b;
}

static const expression *free_digits(rules *r, size_t n)
{
    return grammar_repeat(r, digit(r, '0', '9'), (uint32_t)n, (uint32_t)n);
}

/* Digit strings of the length of low and high, between them; NULL: none. */
static const expression *same_length(rules *r, const char *low, const char *high)
{
    size_t n = strlen(low);
    if (!n) return grammar_nothing();
    if (low[0] == high[0]) {
        const expression *rest = same_length(r, low + 1, high + 1);
        return rest ? grammar_all(r, digit(r, low[0], low[0]), rest) : NULL;
    }
    char nines[24], zeros[24];
    memset(nines, '9', n - 1);
    memset(zeros, '0', n - 1);
    nines[n - 1] = zeros[n - 1] = 0;
    const expression *at_low =
        grammar_all(r, digit(r, low[0], low[0]), same_length(r, low + 1, nines));
    const expression *at_high =
        grammar_all(r, digit(r, high[0], high[0]), same_length(r, zeros, high + 1));
    const expression *inside = digit(r, (char)(low[0] + 1), (char)(high[0] - 1));
    if (inside) inside = grammar_all(r, inside, free_digits(r, n - 1));
    return either(r, either(r, at_low, inside), at_high);
}

/* From low to high, 0 <= low; high UINT64_MAX: without an end. NULL: none. */
static const expression *natural(rules *r, uint64_t low, uint64_t high)
{
    char a[24], b[24], c[24];
    const expression *e = NULL;
    if (low > high) return NULL;
    if (high == UINT64_MAX) { /* up to as many digits as low has, then any with more */
        uint64_t top = 9;
        snprintf(a, sizeof a, "%llu", (unsigned long long)low);
        size_t n = strlen(a);
        for (size_t i = 1; i < n; i++) top = 10 * top + 9;
        const expression *longer = grammar_all(
            r, digit(r, '1', '9'), grammar_repeat(r, digit(r, '0', '9'), (uint32_t)n, UINT32_MAX));
        return either(r, natural(r, low, n < 19 ? top : UINT64_MAX - 1), longer);
    }
    snprintf(b, sizeof b, "%llu", (unsigned long long)high);
    for (;;) {
        snprintf(a, sizeof a, "%llu", (unsigned long long)low);
        size_t n = strlen(a);
        if (n == strlen(b)) return either(r, e, same_length(r, a, b));
        memset(c, '9', n);
        c[n] = 0;
        e = either(r, e, same_length(r, a, c));
        for (low = 1; n; n--) low *= 10;
    }
}

static uint64_t magnitude(int64_t i)
{
    return i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
}

const expression *grammar_integer_between(rules *r, int64_t least, int64_t most)
{
    const expression *below = NULL, *above = NULL;
    if (least < 0) {
        uint64_t high = least == INT64_MIN ? UINT64_MAX : magnitude(least);
        below = natural(r, most < 0 ? magnitude(most) : 1, high);
        if (below) below = grammar_all(r, grammar_text(r, "-"), below);
    }
    if (most >= 0)
        above = natural(r, least > 0 ? (uint64_t)least : 0,
                        most == INT64_MAX ? UINT64_MAX : (uint64_t)most);
    const expression *e = either(r, below, above);
    if (!e)
        grammar_fail(r, PLEACH_ERR_FORMAT, ": schema: there is no integer from %lld to %lld",
                     (long long)least, (long long)most);
    return e ? e : grammar_nothing();
}
