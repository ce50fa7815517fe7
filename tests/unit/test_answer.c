/* SPDX-License-Identifier: Apache-2.0
 *
 * An answer's text is split into the same parts however it was cut into tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "answer/style.h"
#include "answer_feed.h"
#include "base/compiler.h"
#include "text_golden.h"

/* As a whole, byte by byte, and with every two cuts. */
static void check(const pl_answer_settings *s, const char *text, const char *want)
{
    size_t size = strlen(text);
    char *got = feed_bytes(s, text, size);
    assert_string_equal(got, want);
    pl_free(got);
    for (size_t a = 0; a <= size; a++)
        for (size_t b = a; b <= size; b++) {
            got = feed_cut(s, text, size, a, b);
            if (strcmp(got, want))
                fail_msg("%s\ncut at %zu and %zu is\n%s\nand not\n%s", text, a, b, got, want);
            pl_free(got);
        }
}

/* ---- stop strings ---------------------------------------------------------------------------- */

static void text_ends_before_stop_strings(void **state)
{
    (void)state;
    static const struct {
        const char *stop[4], *text, *want;
    } cases[] = {
        {{NULL}, "all of it", "C:all of it"},
        {{NULL}, "", ""},
        {{"O P Q"}, "M N O P Q R", "C:M N "},
        {{"O P Q"}, "O P O P Q", "C:O P "},
        {{"O P Q"}, "O P O P", "C:O P O P"},
        {{"aab"}, "aaaab", "C:aa"},
        {{"abab"}, "aababab", "C:a"},
        {{"abcd", "bc"}, "abcd", "C:a"},  /* the first that is complete */
        {{"cd", "abcd"}, "xabcd", "C:x"}, /* of two that end together the longer */
        {{"zz", "x"}, "z1zxzz", "C:z1z"},
        {{""}, "text", "C:text"},
        {{"\xf0\x9f\xa6\x99"}, "a\xf0\x9f\xa6\x98\xf0\x9f\xa6\x99z", "C:a\xf0\x9f\xa6\x98"},
        {{"\xef\xbf\xbd"},
         "a\xff"
         "b",
         "C:a"}, /* looked for in what is shown */
        {{"stop"}, "stop", ""},
        {{"\n\n", "END"}, "a\nEN\n\nEND", "C:a\nEN"},
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        pl_answer_settings s = {.stop = cases[i].stop};
        while (s.n_stop < 4 && cases[i].stop[s.n_stop]) s.n_stop++;
        check(&s, cases[i].text, cases[i].want);
    }
}

/* What cannot belong to a stop string is shown at once. */
static void nothing_waits_longer_than_it_must(void **state)
{
    (void)state;
    static const char *const stop[] = {"O P Q", "P x"};
    static const struct {
        const char *in, *line;
    } steps[] = {
        {"M", "C:M"},         {" O", "C:M "},          {" ", "C:M "},          {"P", "C:M "},
        {" ", "C:M "},        {"R", "C:M O P R"},      {"O", "C:M O P R"},     {"!", "C:M O P RO!"},
        {"P", "C:M O P RO!"}, {" xyz", "C:M O P RO!"}, {"more", "C:M O P RO!"}};
    answer_feed f = feed_open(&(pl_answer_settings){.stop = stop, .n_stop = 2});
    for (size_t i = 0; i < PL_COUNT(steps); i++) {
        feed_take(&f, steps[i].in, strlen(steps[i].in));
        if (f.line.size != strlen(steps[i].line) || memcmp(f.line.data, steps[i].line, f.line.size))
            fail_msg("step %zu: %.*s", i, (int)f.line.size, f.line.data);
        assert_int_equal(f.stopped, i >= 9);
    }
    char *line = feed_end(&f);
    assert_string_equal(line, "C:M O P RO!");
    pl_free(line);
}

static void characters_are_whole(void **state)
{
    (void)state;
    pl_answer_settings s = {0};
    check(&s, "d\xc3\xa9j\xc3\xa0 \xf0\x9f\xa6\x99", "C:d\xc3\xa9j\xc3\xa0 \xf0\x9f\xa6\x99");
    check(&s, "a\xf0\x9f\xa6", "C:a\xef\xbf\xbd");
    check(&s, "a\xf0\x9f\xa6z\xff", "C:a\xef\xbf\xbdz\xef\xbf\xbd");
}

/* ---- reasoning ------------------------------------------------------------------------------- */

static void reasoning_is_split_off(void **state)
{
    (void)state;
    static const struct {
        bool inside;
        const char *text, *want;
    } cases[] = {
        {false, "<think>\nwhy\n</think>\n\nso", "R:whyC:so"},
        {false, " \n<think>a\n\nb</think>c</think>", "R:a\n\nbC:c</think>"},
        {false, "no thought <think>x</think>", "C:no thought <think>x</think>"},
        {false, "\n<thin", "C:\n<thin"},
        {false, "  text", "C:  text"},
        {false, "<think>cut off </thi", "R:cut off </thi"},
        {false, "<think>\n\n</think>\n\nshort", "C:short"},
        {false, "<think>a < b </ c", "R:a < b </ c"},
        {true, "\nit goes on\n</think>\n\nso\n", "R:it goes onC:so\n"},
        {true, "<think>again", "R:<think>again"},
        {true, "never ends\n", "R:never ends"},
        {true, "</think>\n  ", ""},
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        pl_answer_settings s = {.reasoning = true, .in_reasoning = cases[i].inside};
        check(&s, cases[i].text, cases[i].want);
    }
    check(&(pl_answer_settings){0}, "<think>a</think>b", "C:<think>a</think>b");
}

/* ---- calls ----------------------------------------------------------------------------------- */

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},\"b\":{\"type\":"
    "\"boolean\"},\"o\":{\"type\":\"object\"},\"x\":{}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get_time\"}}]";

typedef struct call_case {
    const char *text, *want;
} call_case;

static void check_calls(pl_tool_style style, bool reasoning, const call_case *cases, size_t n)
{
    json_t *tools = json_loads(tools_text, 0, NULL);
    pl_answer_settings s = {.tools = style, .reasoning = reasoning, .tool_list = tools};
    for (size_t i = 0; i < n; i++) check(&s, cases[i].text, cases[i].want);
    json_decref(tools);
}

static void hermes_calls(void **state)
{
    (void)state;
    static const call_case cases[] = {
        {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": 1}}\n</tool_call>",
         "F:fA:{\"s\": 1}"},
        {"I will.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n", "C:I will.F:fA:{}"},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":[1,{\"b\":\"}]\\\"\"}]}}</tool_call>\n"
         "<tool_call>{\"name\":\"get_time\"}</tool_call>",
         "F:fA:{\"a\":[1,{\"b\":\"}]\\\"\"}]}F:get_timeA:{}"},
        {"<tool_call>{\"arguments\":{\"a\":\"\\u00e9\"},\"name\":\"\\u0066\"}</tool_call>",
         "F:fA:{\"a\":\"\\u00e9\"}"},
        {"<tool_call>{\"id\":[1],\"name\":\"f\",\"arguments\":{},\"z\":{\"name\":3}}</tool_call> "
         "ok",
         "F:fA:{}C:ok"},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"x\ny\"}}</tool_call>",
         "F:fA:{\"a\":\"x\\ny\"}"},
        /* one marker for two calls */
        {"<tool_call>\n{\"name\":\"f\"}\n{\"name\":\"get_time\"}\n</tool_call>",
         "F:fA:{}F:get_timeA:{}"},
        /* cut */
        {"<tool_call>\n{\"name\":\"f\",\"arguments\":{\"s\":\"a\\u00", "F:fA:{\"s\":\"a\\u00"},
        {"<tool_call>\n{\"name\":\"f\",\"argum", "C:<tool_call>\n{\"name\":\"f\",\"argum"},
        {"text \n<tool", "C:text \n<tool"},
        {"<tool_call>{\"name\":\"f\"}\n</tool_c", "F:fA:{}"},
        {"<tool_call>{\"name\":\"f\"}</tool_call>\n<tool_", "F:fA:{}"},
        {"text\n", "C:text\n"},
        {"text\n<tool_call>\n ", "C:text\n<tool_call>\n "},
        /* none */
        {"<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>",
         "C:<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>"},
        {"<tool_call>{\"name\":1}", "C:<tool_call>{\"name\":1}"},
        {"<tool_call>{\"arguments\":{}}</tool_call>",
         "C:<tool_call>{\"arguments\":{}}</tool_call>"},
        {"<tool_call>{\"name\":\"f\",\"arguments\":[]}",
         "C:<tool_call>{\"name\":\"f\",\"arguments\":[]}"},
        {"<tool_call>{\"name\":\"f\",\"name\":\"f\"}",
         "C:<tool_call>{\"name\":\"f\",\"name\":\"f\"}"},
        {"a <tool_call> <tool_call>{\"name\":\"f\"}</tool_call>", "C:a <tool_call>F:fA:{}"},
        {"a < b <tool_cal> c", "C:a < b <tool_cal> c"},
        /* goes wrong on the way */
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1,b}}</tool_call>",
         "F:fA:{\"a\":1,C:b}}</tool_call>"},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\xf0\x9f\x98\x80",
         "F:fA:{\"a\":C:\xf0\x9f\x98\x80"},
    };
    check_calls(PL_TOOLS_HERMES, false, cases, PL_COUNT(cases));
    static const call_case thinking[] = {
        {"<think>\n<tool_call>{\"name\":\"f\"}\n</think>\n\n<tool_call>{\"name\":\"f\"}</"
         "tool_call>",
         "R:<tool_call>{\"name\":\"f\"}F:fA:{}"},
        {"<tool_call>{\"name\":\"f\"}</tool_call>", "F:fA:{}"},
    };
    check_calls(PL_TOOLS_HERMES, true, thinking, PL_COUNT(thinking));
    static const call_case off[] = {
        {"<tool_call>{\"name\":\"f\"}", "C:<tool_call>{\"name\":\"f\"}"}};
    check_calls(PL_TOOLS_NONE, false, off, 1);
}

static void xml_calls(void **state)
{
    (void)state;
    static const call_case cases[] = {
        {"<tool_call>\n<function=f>\n<parameter=s>\na \"b\"\nc\n</parameter>\n<parameter=n>\n3\n"
         "</parameter>\n</function>\n</tool_call>",
         "F:fA:{\"s\": \"a \\\"b\\\"\\nc\", \"n\": 3}"},
        {"Hm.\n\n<tool_call><function=get_time></function></tool_call>", "C:Hm.F:get_timeA:{}"},
        {"<tool_call><function=f><parameter=s>12</parameter><parameter=b>True</parameter>"
         "<parameter=o>{\"a\": [1]}\n</parameter><parameter=x>it's</parameter></function>",
         "F:fA:{\"s\": \"12\", \"b\": true, \"o\": {\"a\": [1]}, \"x\": \"it's\"}"},
        {"<tool_call><function=f><parameter=s>\n\n</parameter></tool_call>!",
         "F:fA:{\"s\": \"\"}C:!"},
        {"<tool_call><function=f><parameter=s>a<b\n\n</param\n</parameter>\n",
         "F:fA:{\"s\": \"a<b\\n\\n</param\""},
        {"<tool_call><function=f></function>\n<function=f></function></tool_call>",
         "F:fA:{}C:<function=f></function></tool_call>"},
        /* cut */
        {"<tool_call><function=f><parameter=s>caf\xc3\xa9\n", "F:fA:{\"s\": \"caf\xc3\xa9\\n"},
        {"<tool_call><function=f><parameter=o>{\"a\": tr", "F:fA:{\"o\": {\"a\": tr"},
        {"<tool_call><function=f><parameter=o>word", "F:fA:{\"o\": \"word"},
        {"<tool_call><function=f><para", "F:fA:{C:<para"},
        {"<tool_call><function=", "C:<tool_call><function="},
        /* none */
        {"<tool_call><function=g>", "C:<tool_call><function=g>"},
        {"<tool_call><function=f>stray", "F:fA:{C:stray"},
        {"<tool_call>\n{\"name\":\"f\",\"arguments\":{\"s\":\"1\"}}</tool_call>",
         "F:fA:{\"s\":\"1\"}"},
    };
    check_calls(PL_TOOLS_XML, false, cases, PL_COUNT(cases));
}

static void llama_calls(void **state)
{
    (void)state;
    static const call_case cases[] = {
        {"{\"name\": \"f\", \"parameters\": {\"s\": \"x\"}}", "F:fA:{\"s\": \"x\"}"},
        {"\n<|python_tag|>{\"type\":\"function\",\"name\":\"f\",\"parameters\":{}}; "
         "{\"name\":\"f\"}",
         "F:fA:{}F:fA:{}"},
        {"{\"answer\": {\"name\": \"f\"}}", "C:{\"answer\": {\"name\": \"f\"}}"},
        {"{\"name\": \"Bob\", \"age\": 3}", "C:{\"name\": \"Bob\", \"age\": 3}"},
        {" {\"name\": \"f\"", "C: {\"name\": \"f\""},
        {"It is {\"name\": \"f\"}.", "C:It is {\"name\": \"f\"}."},
        {" ", "C: "},
    };
    check_calls(PL_TOOLS_LLAMA, false, cases, PL_COUNT(cases));
}

static void mistral_calls(void **state)
{
    (void)state;
    static const call_case cases[] = {
        {"[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"s\": \"x\"}, \"id\": \"abcdefghi\"}]",
         "F:fA:{\"s\": \"x\"}"},
        {"[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}}, "
         "{\"name\":\"get_time\",\"arguments\":{}}]",
         "F:fA:{}F:get_timeA:{}"},
        {"see [1] [TOOL", "C:see [1] [TOOL"},
    };
    check_calls(PL_TOOLS_MISTRAL, false, cases, PL_COUNT(cases));
}

/* F32: arguments come as they are written, not when they are whole. */
static void arguments_are_streamed(void **state)
{
    (void)state;
    pl_answer_settings s = {.tools = PL_TOOLS_HERMES};
    answer_feed f = feed_open(&s);
    static const struct {
        const char *in, *line;
    } steps[] = {
        {"Sure", "C:Sure"},
        {"\n", "C:Sure"},
        {"<tool_call>", "C:Sure"},
        {"{\"name\":\"g\",", "C:Sure"},
        {"\"arguments\": {", "C:SureF:gA:{"},
        {"\"a\": \"b", "C:SureF:gA:{\"a\": \"b"},
        {"c\"", "C:SureF:gA:{\"a\": \"bc\""},
        {"}}", "C:SureF:gA:{\"a\": \"bc\"}"},
    };
    for (size_t i = 0; i < PL_COUNT(steps); i++) {
        feed_take(&f, steps[i].in, strlen(steps[i].in));
        if (f.line.size != strlen(steps[i].line) || memcmp(f.line.data, steps[i].line, f.line.size))
            fail_msg("step %zu: %.*s", i, (int)f.line.size, f.line.data);
    }
    assert_int_equal(pl_answer_calls(f.answer), 1);
    pl_free(feed_end(&f));
}

/* A stop string ends calls as it ends content. */
static void stop_strings_within_calls(void **state)
{
    (void)state;
    static const char *const stop[] = {"\"}"};
    pl_answer_settings s = {.tools = PL_TOOLS_HERMES, .stop = stop, .n_stop = 1};
    check(&s, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"b\"}}", "F:fA:{\"a\":\"b");
}

static void one_call_is_all(void **state)
{
    (void)state;
    static const call_case cases[] = {
        {"Yes.<tool_call>{\"name\":\"f\",\"arguments\":{}}\n</"
         "tool_call>\n<tool_call>{\"name\":\"f\"}",
         "C:Yes.F:fA:{}"},
        {"<tool_call>{\"name\":\"f\"}<tool_call>{\"name\":\"f\"}", "F:fA:{}"},
        {"<tool_call><function=f><parameter=n>1</parameter></function>\n</tool_call> and more",
         "F:fA:{\"n\": 1}"},
        {"<tool_call>{\"name\":1}</tool_call> no", "C:<tool_call>{\"name\":1}</tool_call> no"},
    };
    pl_answer_settings s = {.tools = PL_TOOLS_HERMES, .one_call = true};
    for (size_t i = 0; i < PL_COUNT(cases); i++) check(&s, cases[i].text, cases[i].want);
    answer_feed f = feed_open(&s);
    feed_take(&f, "<tool_call>{\"name\":\"f\"", 22);
    assert_false(f.stopped);
    feed_take(&f, "} ", 2);
    assert_true(f.stopped);
    pl_free(feed_end(&f));
}

/* Texts that make a careless reader read again and again: this test ends. */
static void long_answers_are_read_once(void **state)
{
    (void)state;
    static const char *const units[] = {"<tool_call>",
                                        " ",
                                        "<tool_call>{\"",
                                        "<",
                                        "{\"name\":\"f\",",
                                        "<tool_call>{\"a\":[",
                                        "<tool_call><function=f><parameter=o>",
                                        "</parameter>\n",
                                        "[TOOL_CALLS] [",
                                        "<think>",
                                        "</thin",
                                        "\"",
                                        "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"\n"};
    enum { BYTES = 1 << 20 };
    char *text = pl_alloc(BYTES + 64, 1);
    assert_non_null(text);
    for (size_t i = 0; i < PL_COUNT(units); i++)
        for (pl_tool_style style = PL_TOOLS_NONE; style <= PL_TOOLS_MISTRAL; style++) {
            static const char *const stop[] = {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
                                               "<<<<<<<<<<<<<<<<<<<<>"};
            pl_answer_settings s = {.tools = style, .reasoning = i % 2, .stop = stop, .n_stop = 2};
            size_t unit = strlen(units[i]);
            for (size_t k = 0; k < BYTES; k += unit) memcpy(text + k, units[i], unit);
            answer_feed f = feed_open(&s);
            for (size_t k = 0; k < BYTES; k += 4) feed_take(&f, text + k, 4);
            pl_free(feed_end(&f));
        }
    pl_free(text);
}

/* ---- styles and tokens ----------------------------------------------------------------------- */

static void styles_of_templates(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        pl_tool_style style;
        bool tools;
    } cases[] = {
        {"qwen2.5.jinja", PL_TOOLS_HERMES, true},     {"qwen3.jinja", PL_TOOLS_HERMES, true},
        {"llama3.1.jinja", PL_TOOLS_LLAMA, true},     {"llama3.jinja", PL_TOOLS_HERMES, false},
        {"mistral_v3.jinja", PL_TOOLS_MISTRAL, true}, {"smollm2.jinja", PL_TOOLS_HERMES, false},
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        char path[96];
        snprintf(path, sizeof path, "templates/%s", cases[i].file);
        char *text = text_read(path, NULL);
        assert_int_equal(pl_tools_style(text), cases[i].style);
        assert_int_equal(pl_tools_in_template(text), cases[i].tools);
        pl_free(text);
    }
    assert_int_equal(pl_tools_style("<tool_call><function=f>{{ tools }}"), PL_TOOLS_XML);
    assert_int_equal(pl_tools_style(NULL), PL_TOOLS_HERMES);
}

/* The tokenizer with this template, and markers that are special tokens. */
static pl_tokenizer *open_tokenizer(const char *chat_template)
{
    json_t *root = text_json("byte_bpe.json"),
           *config = json_pack("{s:s}", "chat_template", chat_template);
    json_t *added = json_object_get(root, "added_tokens");
    for (size_t i = 0; i < json_array_size(added); i++)
        json_object_set_new(json_array_get(added, i), "special", json_true());
    pl_tokenizer *t;
    pleach_error err;
    if (open_json(root, config, &t, &err)) fail_msg("%s", err.message);
    json_decref(root);
    json_decref(config);
    return t;
}

static pl_answer_settings style_after(const pl_tokenizer *t, const char *prompt)
{
    pl_ids ids = {0};
    pl_answer_settings s = {0};
    assert_int_equal(pl_tokenizer_encode(t, prompt, strlen(prompt), PL_ENCODE_SPECIAL, &ids, NULL),
                     0);
    pl_answer_style(t, ids.ids, ids.n, &s);
    pl_free(ids.ids);
    return s;
}

static void prompts_open_reasoning(void **state)
{
    (void)state;
    pl_tokenizer *t = open_tokenizer("{{ tools }}<think>"), *plain = open_tokenizer("{{ x }}");
    assert_true(style_after(t, "<|im_start|>assistant\n<think>\n").in_reasoning);
    assert_true(style_after(t, "<think>").in_reasoning);
    assert_true(style_after(plain, "say <think>\n\n").in_reasoning);
    assert_false(style_after(t, "<think>\n\n</think>\n\n").in_reasoning);
    assert_false(style_after(t, "<think>\nabc").in_reasoning);
    assert_false(style_after(t, "").in_reasoning);
    assert_true(style_after(t, "x").reasoning);
    assert_false(style_after(plain, "x").reasoning);
    pl_tokenizer_close(t);
    pl_tokenizer_close(plain);
}

/* Special tokens are silent but for markers that are looked for, and stop strings. */
static void tokens_are_text(void **state)
{
    (void)state;
    static const char *const stop[] = {"<|eot_id|>"};
    static const struct {
        pl_answer_settings settings;
        const char *text, *want;
    } cases[] = {
        {{0}, "a<|im_end|>b<think>c \xf0\x9f\xa6\x99", "C:abc \xf0\x9f\xa6\x99"},
        {{.reasoning = true}, "<think>a<s></think>b", "R:aC:b"},
        {{.stop = stop, .n_stop = 1}, "a<|eot_id|>b", "C:a"},
        {{0}, "a<|eot_id|>b", "C:ab"},
        {{.tools = PL_TOOLS_HERMES}, "<tool_call>{\"name\":\"f\"}</tool_call>", "F:fA:{}"},
    };
    pl_tokenizer *t = open_tokenizer("{{ x }}");
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        pl_ids ids = {0};
        answer_feed f = {.last = -1};
        const char *text = cases[i].text;
        assert_int_equal(pl_tokenizer_encode(t, text, strlen(text), PL_ENCODE_SPECIAL, &ids, NULL),
                         0);
        assert_int_equal(pl_answer_open(t, &cases[i].settings, &f.answer, NULL), 0);
        for (size_t k = 0; k < ids.n; k++) {
            assert_int_equal(pl_answer_take(f.answer, ids.ids[k], &f.stopped, NULL), 0);
            feed_read(&f);
        }
        /* A10: ids beyond the vocabulary are nothing. */
        assert_int_equal(pl_answer_take(f.answer, 1 << 20, &f.stopped, NULL), 0);
        char *got = feed_end(&f);
        assert_string_equal(got, cases[i].want);
        pl_free(got);
        pl_free(ids.ids);
    }
    pl_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_ends_before_stop_strings),
        cmocka_unit_test(nothing_waits_longer_than_it_must),
        cmocka_unit_test(characters_are_whole),
        cmocka_unit_test(reasoning_is_split_off),
        cmocka_unit_test(hermes_calls),
        cmocka_unit_test(xml_calls),
        cmocka_unit_test(llama_calls),
        cmocka_unit_test(mistral_calls),
        cmocka_unit_test(arguments_are_streamed),
        cmocka_unit_test(stop_strings_within_calls),
        cmocka_unit_test(one_call_is_all),
        cmocka_unit_test(long_answers_are_read_once),
        cmocka_unit_test(styles_of_templates),
        cmocka_unit_test(prompts_open_reasoning),
        cmocka_unit_test(tokens_are_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
