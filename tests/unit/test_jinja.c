/* SPDX-License-Identifier: Apache-2.0
 *
 * Templates render as Python's jinja2 renders them (tests/golden/text/make_jinja.py), every byte
 * knows who wrote it, and no template takes more than it may.
 *
 * test_jinja --render reads lines {"template", "said", "own", "now"} and answers {"text"} or
 * {"error"}: make_jinja.py compares whole folders of templates so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "jinja/jinja.h"
#include "text_golden.h"

static pleach_status render(const char *template, size_t size, const json_t *said,
                            const json_t *own, time_t now, pl_jinja_text *out, pleach_error *err)
{
    pl_jinja *t;
    *out = (pl_jinja_text){0};
    pleach_status status = pl_jinja_parse(template, size, &t, err);
    if (status) return status;
    status = pl_jinja_render(t, said, own, &now, out, err);
    pl_jinja_close(t);
    return status;
}

static void check_case(const json_t *all, const json_t *c)
{
    const json_t *text = json_object_get(c, "text");
    const char *file = json_string_value(json_object_get(c, "file"));
    const json_t *said = json_array_get(json_object_get(all, "variables"),
                                        (size_t)json_integer_value(json_object_get(c, "said")));
    char path[96], *template;
    pl_jinja_text got;
    pleach_error err = {0};
    if (file)
        snprintf(path, sizeof path, "templates/%s", file);
    else
        template = strdup(json_string_value(json_object_get(c, "template")));
    if (file) template = text_read(path, NULL);
    pleach_status status = render(template, strlen(template), said, json_object_get(all, "own"),
                                  json_integer_value(json_object_get(all, "now")), &got, &err);
    if (!text && status == PLEACH_OK) fail_msg("rendered what jinja2 refuses: %s", template);
    if (text && status != PLEACH_OK) fail_msg("%s\nof %s", err.message, template);
    if (text && (json_string_length(text) != got.size ||
                 memcmp(json_string_value(text), got.bytes, got.size)))
        fail_msg("%s\ngives %.*s\nnot %s", template, (int)got.size, got.bytes,
                 json_string_value(text));
    pl_jinja_text_free(&got);
    if (file)
        pl_free(template);
    else
        free(template);
}

static void renders_like_jinja2(void **state)
{
    (void)state;
    setenv("TZ", "UTC", 1);
    json_t *all = text_json("jinja_cases.json"), *cases = json_object_get(all, "cases");
    assert_true(json_array_size(cases) > 500);
    for (size_t i = 0; i < json_array_size(cases); i++) check_case(all, json_array_get(cases, i));
    json_decref(all);
}

/* ---- origins --------------------------------------------------------------------------------- */

static void bytes_know_their_origin(void **state)
{
    (void)state;
    static const struct {
        const char *template, *text, *said;
    } cases[] = {
        {"a{{ x }}b{{ own }}", "aX YZb<s>", "011110000"},
        {"{{ '<' + x + '>' }}", "<X YZ>", "011110"},
        {"{{ x | trim | lower }}", "x yz", "1111"},
        {"{{ x | replace('Y', '--') }}", "X --Z", "11001"},
        {"{{ x.split(' ') | join('|') }}", "X|YZ", "1011"},
        {"{{ x[::-1] }}{{ x[1:3] }}", "ZY X Y", "111111"},
        {"{{ {'k': x} | tojson }}", "{\"k\": \"X YZ\"}", "0000000111100"},
        {"{{ d | tojson }}", "{\"a\\\"\": 1}", "0011100000"},
        {"{% set y %}[{{ x }}]{% endset %}{{ y }}{{ y | length }}", "[X YZ]6", "0111100"},
        {"{% macro m(a) %}({{ a }}){% endmacro %}{{ m(x) ~ m('o') }}", "(X YZ)(o)", "011110000"},
        {"{% for c in x %}{{ c }}.{% endfor %}", "X. .Y.Z.", "10101010"},
        {"{{ '%s!' % x }}{{ '{}'.format(x) }}", "X YZ!X YZ", "111101111"},
        {"{{ x if x else 'o' }}{{ e or 'o' }}", "X YZo", "11110"},
    };
    json_t *said = json_pack("{s:s, s:s, s:{s:i}}", "x", "X YZ", "e", "", "d", "a\"", 1);
    json_t *own = json_pack("{s:s}", "own", "<s>");
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        pl_jinja_text got;
        pleach_error err = {0};
        if (render(cases[i].template, strlen(cases[i].template), said, own, 0, &got, &err))
            fail_msg("%s", err.message);
        assert_int_equal(got.size, strlen(cases[i].text));
        assert_memory_equal(got.bytes, cases[i].text, got.size);
        for (size_t k = 0; k < got.size; k++)
            if (got.said[k] != cases[i].said[k] - '0')
                fail_msg("%s: byte %zu of %s", cases[i].template, k, cases[i].text);
        pl_jinja_text_free(&got);
    }
    json_decref(said);
    json_decref(own);
}

/* ---- the clock ------------------------------------------------------------------------------- */

/* A18: strftime_now as transformers has it, by the time that is given. */
static void clock_is_given(void **state)
{
    (void)state;
    static const struct {
        const char *template, *text;
    } cases[] = {
        {"{{ strftime_now('%d %b %Y %H:%M') }}", "09 Feb 2001 04:05"},
        {"{{ strftime_now(\"%A, %B %d, %Y\") | upper }}", "FRIDAY, FEBRUARY 09, 2001"},
        {"{{ strftime_now('%Y-%m-%dT%H:%M:%S %j %p %%') }}", "2001-02-09T04:05:06 040 AM %"},
        {"{% if strftime_now is defined %}{{ strftime_now('') }}.{% endif %}", "."},
    };
    setenv("TZ", "UTC", 1);
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        pl_jinja_text got;
        pleach_error err = {0};
        if (render(cases[i].template, strlen(cases[i].template), NULL, NULL, 981691506, &got, &err))
            fail_msg("%s", err.message);
        assert_int_equal(got.size, strlen(cases[i].text));
        assert_memory_equal(got.bytes, cases[i].text, got.size);
        pl_jinja_text_free(&got);
    }
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void takes_no_more_than_it_may(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for i in range(10**12) %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}"
        "{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}"
        "{% endfor %}{{ ns.l }}",
        "{{ 'x' * 10**15 }}",
        "{{ [1] * 10**15 }}",
        "{{ 'a' | center(10**15) }}",
        "{{ 'a'.ljust(10**15) }}",
        "{{ 'a\\nb' | indent(10**15) }}",
        "{{ 9**99 }}",
        "{% set ns = namespace(x=1) %}{% set ns.x = ns %}{{ 'a' * 10**9 }}",
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        pl_jinja_text got;
        pleach_error err = {0};
        pleach_status status = render(cases[i], strlen(cases[i]), NULL, NULL, 0, &got, &err);
        if (status != PLEACH_ERR_LIMIT) fail_msg("case %zu: %d %s", i, status, err.message);
        assert_non_null(strstr(err.message, "too many"));
    }
}

/* Brackets, blocks and filters nested as deep as anyone likes. */
static void deep_nesting_is_refused(void **state)
{
    (void)state;
    static const char *const parts[] = {"(", "[",    "{% if 1 %}", "not ",
                                        "-", "a|b(", "{1:",        "x if y else "};
    for (size_t i = 0; i < PL_COUNT(parts); i++) {
        size_t n = strlen(parts[i]), size = 3;
        char *text = pl_alloc(100000 * n + 8, 1);
        pl_jinja *t;
        pleach_error err = {0};
        assert_non_null(text);
        memcpy(text, "{{ ", 3);
        if (parts[i][1] == '%') size = 0;
        for (size_t k = 0; k < 100000; k++, size += n) memcpy(text + size, parts[i], n);
        assert_int_equal(pl_jinja_parse(text, size, &t, &err), PLEACH_ERR_FORMAT);
        assert_null(t);
        pl_free(text);
    }
}

/* Every prefix of a real template: refused or parsed, nothing else. */
static void cut_off_templates(void **state)
{
    (void)state;
    size_t size;
    char *text = text_read("templates/qwen3.jinja", &size);
    for (size_t n = 0; n <= size; n++) {
        pl_jinja *t;
        pleach_error err = {0};
        char *part = pl_alloc(n, 1);
        assert_non_null(part);
        memcpy(part, text, n);
        if (pl_jinja_parse(part, n, &t, &err)) assert_true(err.message[0]);
        pl_jinja_close(t);
        pl_free(part);
    }
    pl_free(text);
}

/* ---- bulk ------------------------------------------------------------------------------------ */

static int render_lines(void)
{
    char *line = NULL;
    size_t capacity = 0;
    setenv("TZ", "UTC", 1);
    while (getline(&line, &capacity, stdin) > 0) {
        json_t *in = json_loads(line, 0, NULL), *out;
        const json_t *template = json_object_get(in, "template");
        pl_jinja_text text;
        pleach_error err;
        if (render(json_string_value(template), json_string_length(template),
                   json_object_get(in, "said"), json_object_get(in, "own"),
                   json_integer_value(json_object_get(in, "now")), &text, &err))
            out = json_pack("{s:s}", "error", err.message);
        else
            out = json_pack("{s:s%}", "text", text.bytes, text.size);
        json_dumpf(out, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        pl_jinja_text_free(&text);
        json_decref(out);
        json_decref(in);
    }
    free(line);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_like_jinja2),       cmocka_unit_test(bytes_know_their_origin),
        cmocka_unit_test(clock_is_given),
        cmocka_unit_test(takes_no_more_than_it_may), cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(cut_off_templates),
    };
    if (argc == 2 && !strcmp(argv[1], "--render")) return render_lines();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
