/* SPDX-License-Identifier: Apache-2.0
 *
 * An answer's text is split into the same parts however it was cut into tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "answer_feed.h"
#include "base/compiler.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_ends_before_stop_strings),
        cmocka_unit_test(nothing_waits_longer_than_it_must),
        cmocka_unit_test(characters_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
