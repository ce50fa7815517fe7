/* SPDX-License-Identifier: Apache-2.0
 *
 * Files under a partial name: two writers, modes and links of what is there, bad targets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/memory.h"
#include "scratch.h"

static scratch work;
static pleach_error err;

static const char *at(const char *name)
{
    return scratch_path(&work, name);
}

static void assert_content(const char *name, const char *text)
{
    char *found;
    assert_int_equal(pl_read_file(at(name), 1 << 20, &found, NULL, &err), PLEACH_OK);
    assert_string_equal(found, text);
    pl_free(found);
}

static void the_second_writer_is_refused(void **state)
{
    (void)state;
    pl_output a, b;
    assert_int_equal(pl_output_open(&a, at("file"), &err), PLEACH_OK);
    assert_int_equal(pl_output_write(&a, "first ", 6, &err), PLEACH_OK);
    assert_int_equal(pl_output_open(&b, at("file"), &err), PLEACH_ERR_EXISTS);
    assert_non_null(strstr(err.message, "file.partial: another process is writing it"));
    pl_output_discard(&b);
    assert_int_equal(pl_output_write(&a, "whole", 5, &err), PLEACH_OK);
    assert_int_equal(pl_output_commit(&a, &err), PLEACH_OK);
    assert_content("file", "first whole");
    /* A later one that fails leaves what is there. */
    assert_int_equal(pl_output_open(&b, at("file"), &err), PLEACH_OK);
    assert_int_equal(pl_output_write(&b, "x", 1, &err), PLEACH_OK);
    pl_output_discard(&b);
    assert_content("file", "first whole");
    assert_false(pl_exists(at("file.partial")));
}

/* Many files of one letter each under one name. */
static void write_often(char letter)
{
    char text[5000];
    memset(text, letter, sizeof text);
    for (int i = 0; i < 200; i++) {
        pl_output out;
        if (pl_output_open(&out, at("shared"), &err) != PLEACH_OK) continue;
        for (size_t n = 0; n < sizeof text; n += 1000)
            if (pl_output_write(&out, text + n, 1000, &err) != PLEACH_OK) _exit(1);
        if (pl_output_commit(&out, &err) != PLEACH_OK) _exit(1);
    }
    _exit(0);
}

static void a_name_never_holds_a_mixture(void **state)
{
    (void)state;
    pid_t children[3];
    int ended;
    scratch_text(&work, "shared", "");
    for (int i = 0; i < 3; i++)
        if ((children[i] = fork()) == 0) write_often((char)('a' + i));
    for (int i = 0; i < 200; i++) {
        char *text;
        size_t n;
        assert_int_equal(pl_read_file(at("shared"), 1 << 20, &text, &n, &err), PLEACH_OK);
        assert_true(n == 0 || n == 5000);
        for (size_t j = 1; j < n; j++) assert_int_equal(text[j], text[0]);
        pl_free(text);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(waitpid(children[i], &ended, 0), children[i]);
        assert_int_equal(ended, 0);
    }
    assert_false(pl_exists(at("shared.partial")));
}

static void what_a_killed_writer_left_is_used_again(void **state)
{
    (void)state;
    FILE *left = fopen(at("again.partial"), "w");
    fputs("much more than what follows", left);
    fclose(left);
    scratch_text(&work, "again", "new");
    assert_content("again", "new");
    assert_false(pl_exists(at("again.partial")));
}

static void modes_and_links_stay(void **state)
{
    (void)state;
    struct stat st;
    scratch_text(&work, "private", "old");
    assert_int_equal(chmod(at("private"), 0600), 0);
    assert_int_equal(symlink("private", at("link")), 0);
    scratch_text(&work, "link", "new");
    assert_content("private", "new");
    assert_int_equal(lstat(at("link"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(stat(at("private"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(symlink("nowhere", at("dangling")), 0);
    assert_int_equal(pl_output_check(at("dangling"), &err), PLEACH_ERR_MISSING);
    assert_non_null(strstr(err.message, "cannot follow"));
}

static void bad_targets_are_found_beforehand(void **state)
{
    (void)state;
    assert_int_equal(pl_output_check(at("good"), &err), PLEACH_OK);
    assert_false(pl_exists(at("good")) || pl_exists(at("good.partial")));
    assert_int_equal(pl_output_check("", &err), PLEACH_ERR_MISSING);
    assert_int_equal(pl_output_check(at("missing/file"), &err), PLEACH_ERR_MISSING);
    assert_int_equal(pl_output_check(work.dir, &err), PLEACH_ERR_IO);
    assert_non_null(strstr(err.message, "no regular file"));
    assert_int_equal(mkdir(at("taken.partial"), 0777), 0);
    assert_int_equal(pl_output_check(at("taken"), &err), PLEACH_ERR_IO);
    assert_int_equal(rmdir(at("taken.partial")), 0);
    assert_int_equal(mkfifo(at("pipe.partial"), 0666), 0);
    assert_int_equal(pl_output_check(at("pipe"), &err), PLEACH_ERR_IO);
    assert_int_equal(mkfifo(at("fifo"), 0666), 0);
    assert_int_equal(pl_output_check(at("fifo"), &err), PLEACH_ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_writer_is_refused),
        cmocka_unit_test(a_name_never_holds_a_mixture),
        cmocka_unit_test(what_a_killed_writer_left_is_used_again),
        cmocka_unit_test(modes_and_links_stay),
        cmocka_unit_test(bad_targets_are_found_beforehand),
    };
    scratch_open(&work);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_close(&work);
    return failed;
}
