/* SPDX-License-Identifier: Apache-2.0
 *
 * Grammars of calls, as text: what stands round the arguments is the style's, arguments are %json
 * of the function's schema. */
#include <stdio.h>

#include "grammar/grammar.h"
#include "markers.h"
#include "tools.h"

typedef struct writer {
    const pl_tools_form *form;
    pl_buffer *out;
    pleach_error *err;
} writer;

static pleach_status put(writer *w, const char *s)
{
    return pl_buffer_append(w->out, s, strlen(s), w->err);
}

/* "s", with escapes. */
static pleach_status put_literal(writer *w, const char *s)
{
    PL_TRY(put(w, " \""));
    for (; *s; s++) {
        char escape[8] = {*s, 0};
        if (*s == '"' || *s == '\\' || (unsigned char)*s < 0x20)
            snprintf(escape, sizeof escape, "\\x%02x", (unsigned char)*s);
        PL_TRY(put(w, escape));
    }
    return put(w, "\"");
}

static pleach_status put_json(writer *w, const json_t *schema)
{
    char *text = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text) return pl_fail_memory(w->err, "a schema", 0);
    pleach_status status = put(w, " %json ");
    if (status == PLEACH_OK) status = put(w, text);
    free(text);
    return status;
}

/* The beginnings of the marker, none of them whole; with what does not go on as it does, nor begins
 * it again. */
static pleach_status put_begun(writer *w, const char *marker, bool broken)
{
    for (size_t n = 1; n < strlen(marker); n++) {
        char begun[32], not [16];
        snprintf(begun, sizeof begun, "%.*s", (int)n, marker);
        snprintf(not, sizeof not, " [^<%c]", marker[n]);
        if (n > 1) PL_TRY(put(w, " |"));
        PL_TRY(put_literal(w, begun));
        if (broken) PL_TRY(put(w, not ));
    }
    return PLEACH_OK;
}

/* A rule for any text without the marker, then `before` and the marker. Only the marker's first
 * character is '<': text without it is made of other characters and of beginnings of it, which
 * break off, or stand before a '<'. */
static pleach_status put_until(writer *w, const char *rule, const char *before, const char *marker)
{
    char head[64];
    snprintf(head, sizeof head, "%s ::= ([^<] | %s-begun* (", rule, rule);
    PL_TRY(put(w, head));
    PL_TRY(put_begun(w, marker, true));
    snprintf(head, sizeof head, "))* %s-begun*", rule);
    PL_TRY(put(w, head));
    PL_TRY(put_literal(w, before));
    PL_TRY(put_literal(w, marker));
    snprintf(head, sizeof head, "\n%s-begun ::=", rule);
    PL_TRY(put(w, head));
    PL_TRY(put_begun(w, marker, false));
    return put(w, "\n");
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* Whether a grammar keeps to the schema; for functions that are strict it has to. */
static pleach_status check_schema(writer *w, const json_t *f, const json_t *schema, bool *kept)
{
    pl_grammar *g;
    pleach_error why;
    pleach_status status = pl_grammar_from_schema(schema, &g, &why);
    bool strict = json_is_true(json_object_get(f, "strict"));
    pl_grammar_close(g);
    *kept = status == PLEACH_OK;
    if (*kept || (status == PLEACH_ERR_UNSUPPORTED && !strict)) return PLEACH_OK;
    return pl_fail(w->err, status, "parameters of %s: %s",
                   json_string_value(json_object_get(f, "name")), why.message);
}

/* A function without parameters, or with an empty list of them, takes none; the schema alone would
 * allow any. */
static json_t *parameters_of(const json_t *f)
{
    json_t *schema = json_object_get(f, "parameters");
    const json_t *properties = json_object_get(schema, "properties");
    bool none = json_is_object(properties) && !json_object_size(properties) &&
                !json_object_get(schema, "additionalProperties");
    if (json_object_size(schema) && !none) return json_incref(schema);
    return json_pack("{s:s, s:b}", "type", "object", "additionalProperties", (int)false);
}

static pleach_status put_arguments(writer *w, const json_t *f)
{
    bool kept = false;
    json_t *schema = parameters_of(f), *any = json_pack("{s:s}", "type", "object");
    pleach_status status = check_schema(w, f, schema, &kept);
    if (status == PLEACH_OK) status = put_json(w, kept ? schema : any);
    json_decref(schema);
    json_decref(any);
    return status;
}

/* "#/properties/name" within all the parameters, so that references into them hold. */
static json_t *property_schema(const json_t *parameters, const char *name)
{
    pl_buffer pointer = {0};
    pleach_status status = pl_buffer_append(&pointer, "#/properties/", 13, NULL);
    for (; *name && status == PLEACH_OK; name++) {
        const char *escape = *name == '~' ? "~0" : *name == '/' ? "~1" : NULL;
        status = pl_buffer_append(&pointer, escape ? escape : name, escape ? 2 : 1, NULL);
    }
    json_t *schema = status ? NULL : json_copy((json_t *)parameters);
    if (schema) json_object_set_new(schema, "$ref", json_stringn(pointer.data, pointer.size));
    pl_free(pointer.data);
    return schema;
}

/* A string stands without quotes: one of those listed, or any. */
static pleach_status put_string(writer *w, const json_t *schema)
{
    const json_t *list = json_object_get(schema, "enum");
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        const char *s = json_string_value(json_array_get(list, i));
        PL_TRY(put(w, i ? " |" : " ("));
        PL_TRY(put_literal(w, s ? s : ""));
    }
    if (!n) return put(w, " text");
    PL_TRY(put(w, ")"));
    return put_literal(w, "\n</parameter>");
}

static pleach_status put_value(writer *w, const json_t *f, const char *name, const json_t *schema)
{
    bool kept = false;
    if (pl_tools_is_string(schema)) return put_string(w, schema);
    json_t *one = property_schema(json_object_get(f, "parameters"), name);
    pleach_status status =
        one ? check_schema(w, f, one, &kept) : pl_fail_memory(w->err, "a schema", 0);
    if (status == PLEACH_OK) status = put_json(w, kept ? one : json_true());
    json_decref(one);
    if (status == PLEACH_OK) status = put_literal(w, "\n</parameter>");
    return status;
}

static bool is_required(const json_t *parameters, const char *name)
{
    const json_t *list = json_object_get(parameters, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *s = json_string_value(json_array_get(list, i));
        if (s && !strcmp(s, name)) return true;
    }
    return false;
}

static pleach_status put_parameters(writer *w, const json_t *f)
{
    const json_t *parameters = json_object_get(f, "parameters"), *schema;
    const char *name;
    json_object_foreach(json_object_get(parameters, "properties"), name, schema)
    {
        PL_TRY(put(w, " ("));
        PL_TRY(put_literal(w, "<parameter="));
        PL_TRY(put_literal(w, name));
        PL_TRY(put_literal(w, ">\n"));
        PL_TRY(put_value(w, f, name, schema));
        PL_TRY(put_literal(w, "\n"));
        PL_TRY(put(w, is_required(parameters, name) ? ")" : ")?"));
    }
    return PLEACH_OK;
}

/* ---- calls ----------------------------------------------------------------------------------- */

typedef struct call_style {
    const char *before, *name, *arguments, *after; /* of one call; NULL arguments: XML's */
    const char *begin, *between, *end;             /* of all; NULL between: one call alone */
} call_style;

static const call_style styles[] = {
    [PL_TOOLS_HERMES] = {"<tool_call>\n{\"name\": \"", "\", \"arguments\": ", "", "}\n</tool_call>",
                         "", "\n", ""},
    [PL_TOOLS_XML] = {"<tool_call>\n<function=", ">\n", NULL, "</function>\n</tool_call>", "", "\n",
                      ""},
    [PL_TOOLS_LLAMA] = {"{\"name\": \"", "\", \"parameters\": ", "", "}", "", NULL, ""},
    [PL_TOOLS_MISTRAL] = {"{\"name\": \"", "\", \"arguments\": ", "", "}", "[TOOL_CALLS] [", ", ",
                          "]"},
};

static pleach_status put_call(writer *w, const json_t *f)
{
    const call_style *s = &styles[w->form->style];
    PL_TRY(put_literal(w, s->before));
    PL_TRY(put_literal(w, json_string_value(json_object_get(f, "name"))));
    PL_TRY(put_literal(w, s->name));
    PL_TRY(s->arguments ? put_arguments(w, f) : put_parameters(w, f));
    return put_literal(w, s->after);
}

static pleach_status put_calls(writer *w)
{
    const call_style *s = &styles[w->form->style];
    const char *wanted = w->form->function;
    size_t n = 0;
    PL_TRY(put(w, "call ::="));
    for (size_t i = 0; i < json_array_size(w->form->tools); i++) {
        const json_t *f = json_object_get(json_array_get(w->form->tools, i), "function");
        if (wanted && strcmp(wanted, json_string_value(json_object_get(f, "name")))) continue;
        if (n++) PL_TRY(put(w, "\n  |"));
        PL_TRY(put_call(w, f));
    }
    PL_FAIL_IF(!n, w->err, PLEACH_ERR_ARGUMENT, "there is no tool \"%.60s\"", wanted ? wanted : "");
    PL_TRY(put(w, "\ncalls ::="));
    PL_TRY(put_literal(w, s->begin));
    PL_TRY(put(w, " call"));
    if (w->form->parallel && s->between) {
        PL_TRY(put(w, " ("));
        PL_TRY(put_literal(w, s->between));
        PL_TRY(put(w, " call)*"));
    }
    PL_TRY(put_literal(w, s->end));
    return put(w, "\n");
}

/* ---- all of it ------------------------------------------------------------------------------- */

static pleach_status put_root(writer *w)
{
    const pl_tools_form *f = w->form;
    PL_TRY(put(w, "root ::="));
    if (f->in_reasoning)
        PL_TRY(put(w, " thought [\\n]{0,2}"));
    else if (f->reasoning)
        PL_TRY(put(w, " (\"<think>\" thought [\\n]{0,2})?"));
    PL_TRY(put(w, " ("));
    if (f->tools) PL_TRY(put(w, "calls"));
    if (f->tools && f->schema) PL_TRY(put(w, " |"));
    if (f->schema) PL_TRY(put_json(w, f->schema));
    return put(w, ")\n");
}

pleach_status pl_tools_grammar(const pl_tools_form *form, pl_buffer *out, pleach_error *err)
{
    writer w = {form, out, err};
    bool calls = form->tools && form->style;
    PL_FAIL_IF(!calls && !form->schema, err, PLEACH_ERR_ARGUMENT, "neither tools nor a schema");
    if (form->schema) {
        pl_grammar *alone;
        PL_TRY(pl_grammar_from_schema(form->schema, &alone, err));
        pl_grammar_close(alone);
    }
    PL_TRY(put_root(&w));
    if (form->in_reasoning || form->reasoning) PL_TRY(put_until(&w, "thought", "", PL_THINK_END));
    if (calls) PL_TRY(put_calls(&w));
    if (calls && form->style == PL_TOOLS_XML) PL_TRY(put_until(&w, "text", "\n", PL_PARAMETER_END));
    return pl_buffer_append(out, "", 1, err);
}
