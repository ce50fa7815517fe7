/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "text/utf8_stream.h"

#define BAD "\xef\xbf\xbd"

/* Pushes `in` in pieces of `step` bytes; joins what comes out. */
static void check(const char *in, const char *want)
{
    size_t n = strlen(in);
    for (size_t step = 1; step <= n; step++) {
        pl_utf8_stream s = {0};
        char got[256] = "";
        for (size_t i = 0; i < n; i += step) {
            size_t part = n - i < step ? n - i : step;
            assert_int_equal(pl_utf8_push(&s, in + i, part, NULL), PLEACH_OK);
            strncat(got, s.text, s.ready);
            pl_utf8_shift(&s);
        }
        assert_int_equal(pl_utf8_finish(&s, NULL), PLEACH_OK);
        if (s.ready) strncat(got, s.text, s.ready);
        assert_string_equal(got, want);
        pl_free(s.text);
    }
}

static void whole_characters_pass(void **state)
{
    (void)state;
    check("plain", "plain");
    check("d\xc3\xa9j\xc3\xa0 \xe2\x82\xac \xf0\x9f\xa6\x99!", "d\xc3\xa9j\xc3\xa0 \xe2\x82\xac \xf0\x9f\xa6\x99!");
}

static void nothing_comes_before_a_character_is_whole(void **state)
{
    (void)state;
    const char *llama = "\xf0\x9f\xa6\x99";
    pl_utf8_stream s = {0};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pl_utf8_push(&s, llama + i, 1, NULL), PLEACH_OK);
        assert_int_equal(s.ready, 0);
    }
    assert_int_equal(pl_utf8_push(&s, llama + 3, 1, NULL), PLEACH_OK);
    assert_int_equal(s.ready, 4);
    assert_memory_equal(s.text, llama, 4);
    pl_free(s.text);
}

/* The expectations are those of Python's bytes.decode(errors="replace"). */
static void broken_characters_are_replaced(void **state)
{
    (void)state;
    check("a\x80z", "a" BAD "z");
    check("\xff\xfe", BAD BAD);
    check("\xc3(", BAD "(");
    check("\xe2\x82", BAD);
    check("\xe2\x82x", BAD "x");
    check("\xf0\x9f\xa6", BAD);
    check("\xc0\xaf", BAD BAD);                 /* overlong */
    check("\xe0\x80\xaf", BAD BAD BAD);
    check("\xed\xa0\x80", BAD BAD BAD);         /* a surrogate */
    check("\xf4\x90\x80\x80", BAD BAD BAD BAD); /* beyond U+10FFFF */
    check("\xf0\x80\x80\x80", BAD BAD BAD BAD);
    check("\xe2\x82\xe2\x82\xac", BAD "\xe2\x82\xac");
    check("\xf0\x9f\xc3\xa9", BAD "\xc3\xa9");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_characters_pass),
        cmocka_unit_test(nothing_comes_before_a_character_is_whole),
        cmocka_unit_test(broken_characters_are_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
