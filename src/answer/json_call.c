/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls as JSON objects. Nothing is shown before the name is known and the arguments began; from
 * then on the arguments are shown as they come. */
#include "answer_parts.h"
#include "tools.h"

static bool is_key(const char *s, size_t n, const char *key)
{
    return n == strlen(key) && !memcmp(s, key, n);
}

/* False: a JSON object without a marker has this key, and is no call. */
static bool take_key(pl_json_call *c, bool marked, const char *s, size_t n)
{
    c->key = PL_KEY_OTHER;
    if (is_key(s, n, "name")) c->key = PL_KEY_NAME;
    if (is_key(s, n, "arguments") || is_key(s, n, "parameters")) c->key = PL_KEY_ARGUMENTS;
    return marked || c->key || is_key(s, n, "type") || is_key(s, n, "id");
}

/* A value of the call begins. False: none that a call has there. */
static bool take_value(pl_json_call *c, char first, size_t i)
{
    c->string = i;
    if (c->key == PL_KEY_NAME) return first == '"' && !c->name_size;
    if (c->key != PL_KEY_ARGUMENTS) return true;
    if (first != '{' || c->has_arguments) return false;
    c->has_arguments = c->in_arguments = true;
    c->from = i;
    c->to = i + 1;
    return true;
}

/* Byte i of the text p. Once the call is shown only its arguments matter. */
static bool take_byte(const pl_splitter *s, pl_json_call *c, const char *p, size_t i)
{
    pl_json_state was = c->scan.state;
    uint32_t depth = c->scan.depth;
    if (!pl_json_scan_take(&c->scan, p[i])) return false;
    pl_json_state now = c->scan.state;
    if (c->in_arguments) {
        c->to = i + 1;
        c->in_arguments = c->scan.depth > 1;
        return true;
    }
    if (s->shown || depth != 1 || was == now) return true;
    if (was == PL_JSON_KEY || was == PL_JSON_KEY_OR_END) {
        c->string = i;
    } else if (was == PL_JSON_STRING && now == PL_JSON_COLON) {
        return take_key(c, s->open, p + c->string + 1, i - c->string - 1);
    } else if (was == PL_JSON_STRING && now == PL_JSON_AFTER && c->key == PL_KEY_NAME) {
        c->name = c->string;
        c->name_size = i + 1 - c->string;
    } else if (was == PL_JSON_VALUE) {
        return take_value(c, p[i], i);
    }
    return true;
}

/* Control characters in strings become escapes. */
static pleach_status show_arguments(pl_answer *a, const char *s, size_t n, pleach_error *err)
{
    pl_json_scan *shown = &a->split.json.shown;
    size_t done = 0;
    for (size_t i = 0; i < n; i++) {
        bool control = shown->state == PL_JSON_STRING && (unsigned char)s[i] < 0x20;
        pl_json_scan_take(shown, s[i]);
        if (!control) continue;
        PL_TRY(pl_answer_emit(a, PL_ANSWER_ARGUMENTS, s + done, i - done, err));
        PL_TRY(pl_answer_emit_escaped(a, s + i, 1, err));
        done = i + 1;
    }
    return pl_answer_emit(a, PL_ANSWER_ARGUMENTS, s + done, n - done, err);
}

/* Shows the call once its arguments begin, or it ends without any. */
static pleach_status show_name(pl_answer *a, const char *p, pl_call_state *state, pleach_error *err)
{
    pl_json_call *c = &a->split.json;
    json_t *name = json_loadb(p + c->name, c->name_size, JSON_DECODE_ANY, NULL);
    const char *text = json_string_value(name);
    bool allowed = text && pl_tools_allow(a->set.tool_list, text);
    pleach_status status = PLEACH_OK;
    if (!allowed)
        *state = PL_CALL_BAD;
    else if (c->has_arguments || *state == PL_CALL_DONE)
        status = pl_answer_begin_call(a, text, err);
    json_decref(name);
    if (a->split.shown && !c->has_arguments && status == PLEACH_OK)
        status = pl_answer_emit(a, PL_ANSWER_ARGUMENTS, "{}", 2, err);
    return status;
}

/* Shows what there is and forgets it. */
static pleach_status show_rest(pl_answer *a, const char *p, pl_call_state state, pleach_error *err)
{
    pl_splitter *s = &a->split;
    pl_json_call *c = &s->json;
    PL_TRY(show_arguments(a, p + c->from, c->to - c->from, err));
    c->from = c->to = 0;
    if (state != PL_CALL_WAITS) return PLEACH_OK;
    s->at += s->pos;
    s->pos = 0;
    return PLEACH_OK;
}

pleach_status pl_json_call_read(pl_answer *a, pl_call_state *state, pleach_error *err)
{
    pl_splitter *s = &a->split;
    pl_json_call *c = &s->json;
    const char *p = a->text.data + s->at;
    size_t n = a->ready - s->at;
    *state = PL_CALL_WAITS;
    while (*state == PL_CALL_WAITS && s->pos < n) {
        size_t named = c->name_size, begun = c->has_arguments;
        if (!take_byte(s, c, p, s->pos)) {
            *state = PL_CALL_BAD;
            break;
        }
        s->pos++;
        if (!c->scan.depth) *state = c->name_size ? PL_CALL_DONE : PL_CALL_BAD;
        bool news = named != c->name_size || begun != c->has_arguments || *state == PL_CALL_DONE;
        if (!s->shown && c->name_size && news) PL_TRY(show_name(a, p, state, err));
    }
    return s->shown ? show_rest(a, p, *state, err) : PLEACH_OK;
}
