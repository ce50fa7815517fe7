/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON byte by byte: whether what came so far is the beginning of a JSON text (RFC 8259), without
 * recursion and in constant memory. Strings may hold control characters, which models write where
 * they should write escapes; who passes them on has to escape them. */
#ifndef PL_ANSWER_JSON_SCAN_H
#define PL_ANSWER_JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>

enum { PL_JSON_MAX_DEPTH = 512 };

typedef enum pl_json_state {
    PL_JSON_VALUE, /* a value has to come */
    PL_JSON_VALUE_OR_END,
    PL_JSON_KEY,
    PL_JSON_KEY_OR_END,
    PL_JSON_COLON,
    PL_JSON_AFTER, /* a value */
    PL_JSON_STRING,
    PL_JSON_ESCAPE,
    PL_JSON_HEX,
    PL_JSON_MINUS,
    PL_JSON_ZERO,
    PL_JSON_DIGITS,
    PL_JSON_POINT,
    PL_JSON_FRACTION,
    PL_JSON_EXPONENT,
    PL_JSON_SIGN,
    PL_JSON_POWER,
    PL_JSON_LITERAL
} pl_json_state;

/* Zero it first. */
typedef struct pl_json_scan {
    pl_json_state state;
    bool key;            /* the string is one */
    uint32_t hex;        /* digits of \u that are to come */
    const char *literal; /* what is to come of true, false, null */
    uint32_t depth;
    uint8_t objects[PL_JSON_MAX_DEPTH / 8]; /* bit i: level i is an object, not an array */
} pl_json_scan;

/* False, and nothing more may be asked of it, where no JSON has this byte next or it nests too
 * deep. */
bool pl_json_scan_take(pl_json_scan *s, char byte);
/* A whole value has come. */
bool pl_json_scan_whole(const pl_json_scan *s);

static inline bool pl_json_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

#endif
