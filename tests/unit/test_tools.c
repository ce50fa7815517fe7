/* SPDX-License-Identifier: Apache-2.0
 *
 * Tools are checked, and what keeps to the grammars made of them is read as calls of them, with
 * arguments of their schemas. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "answer/style.h"
#include "answer/told.h"
#include "answer/tools.h"
#include "answer_feed.h"
#include "base/compiler.h"
#include "base/random.h"
#include "grammar/grammar.h"

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":"
    "\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\","
    "\"minimum\":1,\"maximum\":14},\"unit\":{\"type\":\"string\",\"enum\":[\"C\",\"F\"]},\"at\":"
    "{\"$ref\":\"#/$defs/"
    "point\"},\"wind\":{\"type\":\"boolean\"}},\"required\":[\"city\",\"days\"],"
    "\"$defs\":{\"point\":{\"type\":\"array\",\"items\":{\"type\":\"number\"},\"minItems\":2,"
    "\"maxItems\":2}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"now\",\"parameters\":"
    "{\"type\":\"object\",\"properties\":{}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"find\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"what\":{\"type\":\"string\",\"pattern\":\"^a\"},\"n\":{\"type\":\"number\","
    "\"multipleOf\":2}}}}}]";

static json_t *tools(void)
{
    json_t *t = json_loads(tools_text, 0, NULL);
    assert_non_null(t);
    return t;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static void tools_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *tools, *words;
    } bad[] = {
        {"{}", "tools: expected a list"},
        {"[1]", "tools[0]: expected an object"},
        {"[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},{}]", "tools[1].type: "},
        {"[{\"type\":\"web\"}]", "tools[0].type: expected \"function\""},
        {"[{\"type\":\"function\"}]", "tools[0].function: expected an object"},
        {"[{\"type\":\"function\",\"function\":{\"name\":\"\"}}]", "tools[0].function.name: "},
        {"[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]", "tools[0].function.name: "},
        {"[{\"type\":\"function\",\"function\":{\"name\":3}}]", "tools[0].function.name: "},
        {"[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":3}}]",
         "tools[0].function.description: expected a string"},
        {"[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":\"x\"}}]",
         "tools[0].function.parameters: expected an object"},
    };
    pleach_error err;
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        json_t *t = json_loads(bad[i].tools, 0, NULL);
        assert_non_null(t);
        assert_int_equal(pl_tools_check(t, &err), PLEACH_ERR_ARGUMENT);
        if (!strstr(err.message, bad[i].words)) fail_msg("%s", err.message);
        json_decref(t);
    }
    json_t *t = tools();
    assert_int_equal(pl_tools_check(t, &err), PLEACH_OK);
    json_decref(t);
}

/* ---- conversations --------------------------------------------------------------------------- */

static void check_told(const char *chat_template, const char *variables, const char *want)
{
    json_t *v = json_loads(variables, 0, NULL), *w = json_loads(want, 0, NULL);
    pleach_error err;
    assert_non_null(v);
    assert_non_null(w);
    if (pl_tools_tell(chat_template, v, &err)) fail_msg("%s", err.message);
    char *got = json_dumps(v, 0);
    if (!json_equal(v, w)) fail_msg("%s", got);
    free(got);
    json_decref(v);
    json_decref(w);
}

#define CALLS                                                                                      \
    "\"tool_calls\":[{\"id\":\"call_abcdefghijkl\",\"function\":{\"name\":\"f\",\"arguments\":"    \
    "{\"a\":1}}},{\"id\":\"x\",\"function\":{\"name\":\"g\",\"arguments\":{}}}]"

static void templates_are_told_of_tools(void **state)
{
    (void)state;
    static const char calls[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"?\"},{\"role\":\"assistant\",\"content\":"
        "\"Yes.\"," CALLS "},{\"role\":\"tool\",\"content\":\"1\",\"tool_call_id\":"
        "\"call_abcdefghijkl\"},{\"role\":\"tool\",\"content\":\"2\",\"tool_call_id\":\"x\"}]}";
    check_told("{{ tools }}<tool_call>", calls, calls);
    check_told(
        "no such things", calls,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"?\"},{\"role\":\"assistant\","
        "\"content\":\"Yes.\\n<tool_call>\\n{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": "
        "{\\\"a\\\": 1}}\\n</tool_call>\\n<tool_call>\\n{\\\"name\\\": \\\"g\\\", "
        "\\\"arguments\\\": {}}\\n</tool_call>\"},{\"role\":\"user\",\"content\":"
        "\"<tool_response>\\n1\\n</tool_response>\\n<tool_response>\\n2\\n</tool_response>\","
        "\"tool_call_id\":\"call_abcdefghijkl\"}]}");
    check_told("{{ tools }}[TOOL_CALLS]",
               "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\"," CALLS
               "},{\"role\":\"tool\","
               "\"content\":\"\",\"tool_call_id\":\"call_abcdefghijkl\"}]}",
               "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":"
               "\"defghijkl\",\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1}}},{\"id\":"
               "\"00000000x\",\"function\":{\"name\":\"g\",\"arguments\":{}}}]},{\"role\":\"tool\","
               "\"content\":\"\",\"tool_call_id\":\"defghijkl\"}]}");
}

/* The system message, the request's or a new one, names every tool. */
static void system_text_names_tools(void **state)
{
    (void)state;
    for (int with = 0; with < 2; with++) {
        json_t *v = json_pack("{s:[{s:s, s:s}], s:o}", "messages", "role", with ? "system" : "user",
                              "content", "Be brief.", "tools", tools());
        assert_int_equal(pl_tools_tell("plain", v, NULL), PLEACH_OK);
        const json_t *list = json_object_get(v, "messages"), *first = json_array_get(list, 0);
        const char *text = json_string_value(json_object_get(first, "content"));
        assert_null(json_object_get(v, "tools"));
        assert_int_equal(json_array_size(list), with ? 1 : 2);
        assert_string_equal(json_string_value(json_object_get(first, "role")), "system");
        assert_int_equal(strncmp(text, "Be brief.\n\nYou", 14) == 0, with);
        assert_non_null(strstr(text, "{\"name\": \"get_weather\", \"parameters\": {"));
        assert_non_null(strstr(text, "\n{\"name\": \"now\", "));
        json_decref(v);
    }
}

/* ---- grammars -------------------------------------------------------------------------------- */

static pl_grammar *grammar_of(const pl_tools_form *form)
{
    pl_buffer text = {0};
    pl_grammar *g;
    pleach_error err;
    if (pl_tools_grammar(form, &text, &err)) fail_msg("%s", err.message);
    if (pl_grammar_parse(text.data, text.size - 1, &g, &err))
        fail_msg("%s\n%s", text.data, err.message);
    pl_free(text.data);
    return g;
}

static bool takes(const pl_grammar *g, const char *text)
{
    pl_matcher *m;
    assert_int_equal(pl_matcher_open(g, &m, NULL), PLEACH_OK);
    bool yes = pl_matcher_take(m, text, strlen(text)) && pl_matcher_may_end(m);
    pl_matcher_close(m);
    return yes;
}

static void grammars_take_calls(void **state)
{
    (void)state;
    static const struct {
        pl_tools_form form;
        const char *good[4], *bad[4];
    } cases[] = {
        {{.style = PL_TOOLS_HERMES},
         {"<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
          "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": "
          "3, "
          "\"at\": [1, 2.5]}}\n</tool_call>",
          "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"q\": [1]}}\n</tool_call>"},
         {"Hello", "", "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n",
          "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"days\": 3}}\n</tool_call>"}},
        {{.style = PL_TOOLS_HERMES, .function = "now", .parallel = true},
         {"<tool_call>\n{\"name\": \"now\", \"arguments\": "
          "{}}\n</tool_call>\n<tool_call>\n{\"name\": "
          "\"now\", \"arguments\": {}}\n</tool_call>"},
         {"<tool_call>\n{\"name\": \"find\", \"arguments\": {}}\n</tool_call>"}},
        {{.style = PL_TOOLS_HERMES, .function = "now", .in_reasoning = true},
         {"a <b> </thin </think>\n\n<tool_call>\n{\"name\": \"now\", \"arguments\": "
          "{}}\n</tool_call>",
          "<<</<</thi</think><tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"},
         {"a</think>b</think><tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
          "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"}},
        {{.style = PL_TOOLS_LLAMA, .reasoning = true},
         {"{\"name\": \"now\", \"parameters\": {}}",
          "<think>\nso\n</think>\n\n{\"name\": \"now\", \"parameters\": {}}"},
         {"{\"name\": \"now\"}", "<think>{\"name\": \"now\", \"parameters\": {}}"}},
        {{.style = PL_TOOLS_MISTRAL, .parallel = true},
         {"[TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"now\", "
          "\"arguments\": {}}]"},
         {"[TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}}, ]"}},
        {{.style = PL_TOOLS_XML},
         {"<tool_call>\n<function=now>\n</function>\n</tool_call>",
          "<tool_call>\n<function=get_weather>\n<parameter=city>\nA<B\n</para\n\n</parameter>\n"
          "<parameter=days>\n14\n</parameter>\n<parameter=unit>\nC\n</parameter>\n<parameter=at>\n"
          "[1,2]\n</parameter>\n</function>\n</tool_call>"},
         {"<tool_call>\n<function=get_weather>\n<parameter=city>\nA\n</parameter>\n</function>\n"
          "</tool_call>",
          "<tool_call>\n<function=get_weather>\n<parameter=city>\nA</parameter>\n</parameter>\n"
          "<parameter=days>\n1\n</parameter>\n</function>\n</tool_call>",
          "<tool_call>\n<function=get_weather>\n<parameter=city>\nA\n</parameter>\n"
          "<parameter=days>\n15\n</parameter>\n</function>\n</tool_call>"}},
    };
    json_t *t = tools();
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        pl_tools_form form = cases[i].form;
        form.tools = t;
        pl_grammar *g = grammar_of(&form);
        for (size_t k = 0; k < 4 && cases[i].good[k]; k++)
            if (!takes(g, cases[i].good[k])) fail_msg("case %zu takes not %s", i, cases[i].good[k]);
        for (size_t k = 0; k < 4 && cases[i].bad[k]; k++)
            if (takes(g, cases[i].bad[k])) fail_msg("case %zu takes %s", i, cases[i].bad[k]);
        pl_grammar_close(g);
    }
    json_decref(t);
}

/* JSON in place of a call, and alone behind reasoning. */
static void grammars_take_schemas(void **state)
{
    (void)state;
    json_t *t = tools(), *schema = json_pack("{s:s}", "type", "integer");
    pl_tools_form form = {.style = PL_TOOLS_HERMES, .tools = t, .schema = schema};
    pl_grammar *g = grammar_of(&form);
    assert_true(takes(g, "12"));
    assert_true(takes(g, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"));
    assert_false(takes(g, "x"));
    pl_grammar_close(g);
    form = (pl_tools_form){.schema = schema, .in_reasoning = true};
    g = grammar_of(&form);
    assert_true(takes(g, "hm</think>\n\n12"));
    assert_false(takes(g, "12"));
    pl_grammar_close(g);
    json_decref(schema);
    json_decref(t);
}

static void what_cannot_be_kept_to_is_refused(void **state)
{
    (void)state;
    pl_buffer text = {0};
    pleach_error err;
    json_t *t = tools();
    pl_tools_form form = {.style = PL_TOOLS_HERMES, .tools = t, .function = "nobody"};
    assert_int_equal(pl_tools_grammar(&form, &text, &err), PLEACH_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "there is no tool \"nobody\""));
    json_t *find = json_object_get(json_array_get(t, 2), "function");
    json_object_set_new(find, "strict", json_true());
    form.function = "find";
    assert_int_equal(pl_tools_grammar(&form, &text, &err), PLEACH_ERR_UNSUPPORTED);
    if (!strstr(err.message, "parameters of find: ")) fail_msg("%s", err.message);
    json_object_set_new(find, "parameters", json_pack("{s:s}", "type", "thing"));
    json_object_del(find, "strict");
    assert_int_equal(pl_tools_grammar(&form, &text, &err), PLEACH_ERR_FORMAT);
    form = (pl_tools_form){0};
    assert_int_equal(pl_tools_grammar(&form, &text, &err), PLEACH_ERR_ARGUMENT);
    pl_free(text.data);
    json_decref(t);
}

/* ---- random walks ---------------------------------------------------------------------------- */

/* Tokens: what ends something first, then pieces, then bytes. */
static const char *const pieces[] = {
    "\n</parameter>",   "</think>", "\"",         "}",  "]",    "1",    "\n", "</",
    "<tool_call>",      "{\"",      "\": ",       ", ", "name", "true", "-1", "\\u00e9",
    "\xf0\x9f\xa6\x99", "<",        "parameter>", "\\n"};
enum { N_ENDS = 7, N_PIECES = PL_COUNT(pieces), N_TOKENS = N_PIECES + 256 };

/* A random text of the grammar, or one without its end; false then. */
static bool walk(const pl_grammar *g, const pl_token_list *list, const char *const *tokens,
                 const size_t *sizes, uint64_t *random, pl_buffer *text)
{
    pl_matcher *m;
    uint32_t allowed[N_TOKENS / 32 + 1];
    bool ended = false;
    text->size = 0;
    assert_int_equal(pl_matcher_open(g, &m, NULL), PLEACH_OK);
    for (int step = 0; step < 600 && !ended; step++) {
        uint32_t choice[N_TOKENS], n = 0, most = N_TOKENS;
        pl_matcher_mask(m, list, allowed);
        if (step > 20 || pl_random_next(random) % 3 == 0) most = N_ENDS;
        for (uint32_t i = 0; i < most; i++)
            if (allowed[i / 32] >> i % 32 & 1) choice[n++] = i;
        for (uint32_t i = most; i < N_TOKENS && !n; i++)
            if (allowed[i / 32] >> i % 32 & 1) choice[n++] = i;
        if (n) {
            uint32_t i = choice[pl_random_next(random) % n];
            assert_true(pl_matcher_take(m, tokens[i], sizes[i]));
            assert_int_equal(pl_buffer_append(text, tokens[i], sizes[i], NULL), PLEACH_OK);
        }
        ended = pl_matcher_may_end(m) && (!n || pl_random_next(random) % 4 == 0);
        assert_true(n || ended);
    }
    pl_matcher_close(m);
    return ended;
}

static bool is_count(const json_t *v)
{
    return json_is_integer(v) && json_integer_value(v) >= 1 && json_integer_value(v) <= 14;
}

/* Whether it is what the schemas above say. */
static bool fits(const char *name, const json_t *arguments)
{
    const json_t *at = json_object_get(arguments, "at"), *v;
    if (!json_is_object(arguments)) return false;
    if (!strcmp(name, "now")) return json_object_size(arguments) == 0;
    if (strcmp(name, "get_weather")) return true; /* any object */
    if (!json_is_string(json_object_get(arguments, "city"))) return false;
    if (!is_count(json_object_get(arguments, "days"))) return false;
    if (at && !(json_array_size(at) == 2 && json_is_number(json_array_get(at, 0)))) return false;
    if ((v = json_object_get(arguments, "wind")) && !json_is_boolean(v)) return false;
    v = json_object_get(arguments, "unit");
    return !v || !strcmp(json_string_value(v), "C") || !strcmp(json_string_value(v), "F");
}

/* Numbers so large that no number type holds them are right, if not to the JSON library. */
static bool has_large_number(const char *s)
{
    size_t digits = 0;
    for (; *s && digits < 18; s++) digits = *s >= '0' && *s <= '9' ? digits + 1 : 0;
    return digits == 18 || strpbrk(s, "eE");
}

static void check_walk(const pl_tools_form *form, const pl_buffer *text)
{
    pl_answer_settings s = {.tools = form->style,
                            .reasoning = form->reasoning,
                            .in_reasoning = form->in_reasoning,
                            .tool_list = form->tools};
    pl_answer *a;
    pl_answer_piece p;
    bool stopped;
    char name[64] = "";
    pl_buffer arguments = {0};
    assert_int_equal(pl_answer_open(NULL, &s, &a, NULL), PLEACH_OK);
    assert_int_equal(pl_answer_take_text(a, text->data, text->size, &stopped, NULL), PLEACH_OK);
    bool more = pl_answer_next(a, &p), called = false;
    while (more) {
        if (p.part == PL_ANSWER_CONTENT) fail_msg("content in %.*s", (int)text->size, text->data);
        if (p.part == PL_ANSWER_CALL) snprintf(name, sizeof name, "%.*s", (int)p.size, p.text);
        if (p.part == PL_ANSWER_ARGUMENTS) pl_buffer_append(&arguments, p.text, p.size, NULL);
        more = pl_answer_next(a, &p);
        if (arguments.size && (!more || p.part == PL_ANSWER_CALL)) {
            pl_buffer_append(&arguments, "", 1, NULL);
            json_t *j = json_loads(arguments.data, JSON_ALLOW_NUL, NULL);
            if ((j && !fits(name, j)) ||
                (!j && !has_large_number(arguments.data) && !strstr(arguments.data, "\\u")))
                fail_msg("%s of %s in %.*s", arguments.data, name, (int)text->size, text->data);
            json_decref(j);
            arguments.size = 0;
            called = true;
        }
    }
    if (!called) fail_msg("no call in %.*s", (int)text->size, text->data);
    pl_free(arguments.data);
    pl_answer_close(a);
}

static void random_answers_are_calls(void **state)
{
    (void)state;
    const char *tokens[N_TOKENS];
    size_t sizes[N_TOKENS];
    char bytes[256];
    for (size_t i = 0; i < N_TOKENS; i++) {
        if (i >= N_PIECES) bytes[i - N_PIECES] = (char)(i - N_PIECES);
        tokens[i] = i < N_PIECES ? pieces[i] : &bytes[i - N_PIECES];
        sizes[i] = i < N_PIECES ? strlen(pieces[i]) : 1;
    }
    pl_token_list *list;
    pl_buffer text = {0};
    uint64_t random = 5;
    json_t *t = tools();
    assert_int_equal(pl_token_list_make(tokens, sizes, N_TOKENS, &list, NULL), PLEACH_OK);
    for (pl_tool_style style = PL_TOOLS_HERMES; style <= PL_TOOLS_MISTRAL; style++)
        for (int kind = 0; kind < 4; kind++) {
            pl_tools_form form = {.style = style,
                                  .tools = t,
                                  .parallel = kind & 1,
                                  .function = kind & 2 ? "get_weather" : NULL,
                                  .reasoning = kind & 2,
                                  .in_reasoning = kind == 3};
            pl_grammar *g = grammar_of(&form);
            int ended = 0;
            for (int i = 0; i < 40; i++) {
                if (!walk(g, list, tokens, sizes, &random, &text)) continue;
                check_walk(&form, &text);
                ended++;
            }
            assert_true(ended >= 10);
            pl_grammar_close(g);
        }
    json_decref(t);
    pl_free(text.data);
    pl_token_list_close(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tools_are_checked),
        cmocka_unit_test(templates_are_told_of_tools),
        cmocka_unit_test(system_text_names_tools),
        cmocka_unit_test(grammars_take_calls),
        cmocka_unit_test(grammars_take_schemas),
        cmocka_unit_test(what_cannot_be_kept_to_is_refused),
        cmocka_unit_test(random_answers_are_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
