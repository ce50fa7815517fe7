/* SPDX-License-Identifier: Apache-2.0
 *
 * The report: its JSON agrees with the summary and the folder, its page is whole and takes names as
 * text, and equal runs write equal files. */
#include "quantize_fixture.h"

#include <jansson.h>
#include <math.h>

#include "quant/report.h"

static json_t *read_report(const char *dir)
{
    char path[512];
    json_error_t error;
    snprintf(path, sizeof path, "%s/quantize-report.json", dir);
    json_t *o = json_load_file(path, 0, &error);
    if (!o) fail_msg("%s: %s", path, error.text);
    return o;
}

static json_t *get(json_t *o, const char *a, const char *b)
{
    json_t *v = json_object_get(json_object_get(o, a), b);
    if (!v) fail_msg("%s.%s is not there", a, b);
    return v;
}

static void check_modules(json_t *report, const pleach_quantize_summary *s)
{
    json_t *modules = json_object_get(report, "modules");
    double sum = 0;
    size_t n = 0;
    assert_int_equal(json_array_size(modules), s->n_items);
    for (size_t i = 0; i < s->n_items; i++) {
        const pleach_quantize_item *t = &s->items[i];
        json_t *m = json_array_get(modules, i);
        assert_string_equal(json_string_value(json_object_get(m, "name")), t->name);
        assert_int_equal(json_integer_value(json_object_get(m, "bytes")), t->bytes);
        assert_true(json_number_value(json_object_get(m, "relative_error")) == t->relative_error);
        assert_int_equal(json_integer_value(json_object_get(m, "k")), t->k);
        if (!t->k) continue;
        assert_true(t->relative_error > 0 && t->relative_error < .1);
        sum += t->relative_error;
        n++;
    }
    assert_true(fabs(sum / (double)n - s->relative_error) < 1e-12);
}

static void test_json(void **state)
{
    (void)state;
    pleach_quantize_settings s = bits(3);
    pleach_quantize_summary made;
    s.budget = 2.9;
    assert_ok(pleach_quantize(TIED, at("json"), &s, &made, err));
    json_t *report = read_report(at("json"));
    assert_string_equal(json_string_value(json_object_get(report, "source")), TIED);
    assert_true(json_number_value(get(report, "totals", "block_bits")) == made.block_bits);
    assert_int_equal(json_integer_value(get(report, "totals", "bytes")), made.bytes);
    assert_true(json_number_value(get(report, "settings", "budget")) == 2.9);
    assert_true(json_is_null(json_object_get(report, "evaluation")));
    json_t *warnings = json_object_get(report, "warnings");
    assert_int_equal(json_array_size(warnings), made.n_warnings);
    assert_string_equal(json_string_value(json_array_get(warnings, 0)), made.warnings[0]);
    check_modules(report, &made);
    json_decref(report);
    pleach_quantize_summary_free(&made);
    s.threads = 1;
    assert_ok(pleach_quantize(TIED, at("again"), &s, NULL, err));
    assert_same_file(at("json"), at("again"), "quantize-report.json");
    assert_same_file(at("json"), at("again"), "report.html");
}

/* Every tag that is opened is closed in its turn, and nothing is fetched. */
static void check_page(const char *html)
{
    const char *open[64];
    size_t lengths[64], n = 0;
    for (const char *p = strchr(html, '<'); p; p = strchr(p + 1, '<')) {
        bool closes = p[1] == '/';
        const char *name = p + 1 + closes;
        size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789");
        if (p[1] == '!' || !strncmp(name, "meta", 4)) continue;
        if (closes) {
            assert_true(n > 0 && lengths[n - 1] == length && !strncmp(open[n - 1], name, length));
            n--;
        } else {
            assert_true(n < PL_COUNT(open) && length > 0);
            open[n] = name;
            lengths[n++] = length;
        }
    }
    assert_int_equal(n, 0);
    assert_null(strstr(html, "http"));
    assert_null(strstr(html, "src="));
    assert_null(strstr(html, "<script"));
    assert_null(strstr(html, "nan"));
    assert_null(strstr(html, "inf"));
}

static size_t count(const char *html, const char *part)
{
    size_t n = 0;
    for (const char *p = html; (p = strstr(p, part)); p++) n++;
    return n;
}

static void test_page(void **state)
{
    (void)state;
    char *html, path[512];
    size_t size;
    snprintf(path, sizeof path, "%s/report.html", at("json"));
    read_all(path, &html, &size);
    check_page(html);
    assert_int_equal(count(html, "class=\"bits\""), 21); /* three layers of seven */
    assert_int_equal(count(html, "class=\"loss\""), 21);
    assert_int_equal(count(html, "class=\"warn\""), 1);
    pl_free(html);
}

/* Names, warnings and fallbacks are text, whatever they hold; odd numbers do no harm. */
static void test_hostile(void **state)
{
    (void)state;
    pleach_quantize_settings s = bits(3);
    pleach_quantize_item items[3] = {
        {.name = "model.layers.0.mlp.<b>&\"x", .coding = "trellis", .k = 2, .proxy_loss = 1e-9},
        {.name = "model.layers.99999999999.mlp.up", .coding = "trellis", .k = 4},
        {.name = "", .coding = "dense", .relative_error = 1, .fallback = "</table><i>"}};
    char warnings[1][256] = {"<script>alert(1)</script>"};
    pleach_quantize_summary summary = {.n_items = 3, .items = items, .n_warnings = 1,
                                       .warnings = warnings};
    pl_report r = {.source = "<a href=x>", .settings = &s, .summary = &summary};
    char *html = pl_report_html(&r);
    assert_non_null(html);
    check_page(html);
    assert_non_null(strstr(html, "&lt;b&gt;&amp;&quot;x"));
    free(html);
    summary.n_items = 0;
    html = pl_report_html(&r);
    check_page(html);
    free(html);
}

static void test_command(void **state)
{
    (void)state;
    pleach_quantize_settings s = bits(3);
    pl_report r = {.source = "it's here", .settings = &s};
    s.report_text = "text.txt";
    char *command = pl_report_command(&r, "out dir");
    assert_string_equal(command, "pleach eval 'out dir' --teacher 'it'\\''s here' --text text.txt "
                                 "--ctx 512 --score second-half");
    free(command);
}

/* A text that is not there is refused before the work, and any where there is no tokenizer. */
static void test_no_text(void **state)
{
    (void)state;
    pleach_quantize_settings s = bits(3);
    s.report_text = at("nowhere.txt");
    assert_refused(pleach_quantize(TIED, at("no-text"), &s, NULL, err), PLEACH_ERR_MISSING,
                   "nowhere.txt");
    assert_false(pl_exists(at("no-text.partial")));
    s.report_text = at("some.txt");
    assert_ok(pl_write_file(s.report_text, "some text", 9, err));
    assert_refused(pleach_quantize(TIED, at("no-text"), &s, NULL, err), PLEACH_ERR_MISSING,
                   "--report-text needs a tokenizer");
    assert_false(pl_exists(at("no-text.partial")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),    cmocka_unit_test(test_page), cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_command), cmocka_unit_test(test_no_text),
    };
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
