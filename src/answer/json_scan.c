/* SPDX-License-Identifier: Apache-2.0 */
#include "json_scan.h"

#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool to(pl_json_scan *s, pl_json_state state)
{
    s->state = state;
    return true;
}

static bool in_object(const pl_json_scan *s)
{
    return s->objects[(s->depth - 1) / 8] >> (s->depth - 1) % 8 & 1;
}

static bool open_level(pl_json_scan *s, bool object)
{
    if (s->depth == PL_JSON_MAX_DEPTH) return false;
    uint8_t bit = (uint8_t)(1u << s->depth % 8), *bits = &s->objects[s->depth / 8];
    *bits = (uint8_t)(object ? *bits | bit : *bits & ~bit);
    s->depth++;
    return to(s, object ? PL_JSON_KEY_OR_END : PL_JSON_VALUE_OR_END);
}

static bool close_level(pl_json_scan *s, char c)
{
    if (!s->depth || in_object(s) != (c == '}')) return false;
    s->depth--;
    return to(s, PL_JSON_AFTER);
}

static bool string(pl_json_scan *s, bool key)
{
    s->key = key;
    return to(s, PL_JSON_STRING);
}

static bool literal(pl_json_scan *s, const char *rest)
{
    s->literal = rest;
    return to(s, PL_JSON_LITERAL);
}

static bool value(pl_json_scan *s, char c)
{
    switch (c) {
    case '{':
    case '[':
        return open_level(s, c == '{');
    case '"':
        return string(s, false);
    case '-':
        return to(s, PL_JSON_MINUS);
    case '0':
        return to(s, PL_JSON_ZERO);
    case 't':
        return literal(s, "rue");
    case 'f':
        return literal(s, "alse");
    case 'n':
        return literal(s, "ull");
    default:
        return is_digit(c) && to(s, PL_JSON_DIGITS);
    }
}

static bool after(pl_json_scan *s, char c)
{
    if (pl_json_blank(c)) return to(s, PL_JSON_AFTER);
    if (c == '}' || c == ']') return close_level(s, c);
    return c == ',' && s->depth && to(s, in_object(s) ? PL_JSON_KEY : PL_JSON_VALUE);
}

static bool in_string(pl_json_scan *s, char c)
{
    if (c == '\\') return to(s, PL_JSON_ESCAPE);
    return c != '"' || to(s, s->key ? PL_JSON_COLON : PL_JSON_AFTER);
}

static bool escape(pl_json_scan *s, char c)
{
    s->hex = 4;
    if (c == 'u') return to(s, PL_JSON_HEX);
    return c && strchr("\"\\/bfnrt", c) && to(s, PL_JSON_STRING);
}

/* What comes where a number stands: more of it, or what follows a value. */
static bool number(pl_json_scan *s, char c)
{
    pl_json_state was = s->state;
    bool exponent = c == 'e' || c == 'E';
    switch (was) {
    case PL_JSON_MINUS:
        return is_digit(c) && to(s, c == '0' ? PL_JSON_ZERO : PL_JSON_DIGITS);
    case PL_JSON_POINT:
        return is_digit(c) && to(s, PL_JSON_FRACTION);
    case PL_JSON_EXPONENT:
        if (c == '+' || c == '-') return to(s, PL_JSON_SIGN);
        return is_digit(c) && to(s, PL_JSON_POWER);
    case PL_JSON_SIGN:
        return is_digit(c) && to(s, PL_JSON_POWER);
    default:
        break;
    }
    if (was != PL_JSON_ZERO && is_digit(c)) return true;
    if (was != PL_JSON_POWER && exponent) return to(s, PL_JSON_EXPONENT);
    if ((was == PL_JSON_ZERO || was == PL_JSON_DIGITS) && c == '.') return to(s, PL_JSON_POINT);
    return after(s, c);
}

bool pl_json_scan_take(pl_json_scan *s, char c)
{
    switch (s->state) {
    case PL_JSON_VALUE:
        return pl_json_blank(c) || value(s, c);
    case PL_JSON_VALUE_OR_END:
        if (c == ']') return close_level(s, c);
        return pl_json_blank(c) || value(s, c);
    case PL_JSON_KEY:
        return pl_json_blank(c) || (c == '"' && string(s, true));
    case PL_JSON_KEY_OR_END:
        if (c == '}') return close_level(s, c);
        return pl_json_blank(c) || (c == '"' && string(s, true));
    case PL_JSON_COLON:
        return pl_json_blank(c) || (c == ':' && to(s, PL_JSON_VALUE));
    case PL_JSON_AFTER:
        return after(s, c);
    case PL_JSON_STRING:
        return in_string(s, c);
    case PL_JSON_ESCAPE:
        return escape(s, c);
    case PL_JSON_HEX:
        return is_hex(c) && (--s->hex || to(s, PL_JSON_STRING));
    case PL_JSON_LITERAL:
        if (c != *s->literal) return false;
        return *++s->literal || to(s, PL_JSON_AFTER);
    default:
        return number(s, c);
    }
}

bool pl_json_scan_whole(const pl_json_scan *s)
{
    switch (s->state) {
    case PL_JSON_AFTER:
    case PL_JSON_ZERO:
    case PL_JSON_DIGITS:
    case PL_JSON_FRACTION:
    case PL_JSON_POWER:
        return s->depth == 0;
    default:
        return false;
    }
}
