/* SPDX-License-Identifier: Apache-2.0
 *
 * Outputs that would harm their source, or something else, are refused before any writing. */
#include "quantize_fixture.h"

#include "format/checkpoint.h"

/* Every refused call leaves the source and the named folder as they were. */
static void refuse(const char *source, const char *out, int force, int status, const char *part)
{
    pleach_quantize_settings s = bits(2);
    s.force = force;
    assert_refused(pleach_quantize(source, out, &s, NULL, err), status, part);
    assert_same_folder(at("source"), TIED);
}

static void test_output_is_source(void **state)
{
    (void)state;
    copy_checkpoint(at("source"));
    assert_int_equal(symlink("source", at("link")), 0);
    assert_int_equal(mkdir(at("aside"), 0777), 0);
    for (int force = 0; force <= 1; force++) {
        static const char *const spellings[] = {"source", "source/", "./source//", "link",
                                                "aside/../source", "link/."};
        for (size_t i = 0; i + 1 < PL_COUNT(spellings); i++)
            refuse(at("source"), at(spellings[i]), force, PLEACH_ERR_ARGUMENT, "source");
        refuse(at("link"), at("source"), force, PLEACH_ERR_ARGUMENT, "itself");
        refuse(at("source"), at("link/."), force, PLEACH_ERR_ARGUMENT, "new folder's name");
        refuse(at("source"), at("aside/.."), force, PLEACH_ERR_ARGUMENT, "new folder's name");
        refuse(at("source"), "", force, PLEACH_ERR_ARGUMENT, "new folder's name");
        refuse(at("source"), "/", force, PLEACH_ERR_ARGUMENT, "new folder's name");
    }
}

static void test_one_inside_the_other(void **state)
{
    (void)state;
    for (int force = 0; force <= 1; force++) {
        refuse(at("source"), at("source/out"), force, PLEACH_ERR_ARGUMENT, "inside the source");
        refuse(at("source"), at("link/out"), force, PLEACH_ERR_ARGUMENT, "inside the source");
        refuse(at("source"), scratch, force, PLEACH_ERR_ARGUMENT, "holds files of the source");
    }
    assert_false(pl_exists(at("source/out.partial")));
    /* A source whose files are links into the output, as a download cache has them. */
    char target[512], link_path[512];
    copy_checkpoint(at("blobs"));
    assert_int_equal(mkdir(at("snapshot"), 0777), 0);
    static const char *const names[] = {"config.json", "model.safetensors"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(target, sizeof target, "%s/%s", at("blobs"), names[i]);
        snprintf(link_path, sizeof link_path, "%s/%s", at("snapshot"), names[i]);
        assert_int_equal(symlink(target, link_path), 0);
    }
    refuse(at("snapshot"), at("blobs"), 1, PLEACH_ERR_ARGUMENT, "holds files of the source");
    assert_same_folder(at("blobs"), TIED);
    /* The work folder counts too. */
    assert_int_equal(rename(at("blobs"), at("far.partial")), 0);
    for (size_t i = 0; i < 2; i++) {
        snprintf(target, sizeof target, "%s/%s", at("far.partial"), names[i]);
        snprintf(link_path, sizeof link_path, "%s/%s", at("snapshot"), names[i]);
        assert_int_equal(unlink(link_path), 0);
        assert_int_equal(symlink(target, link_path), 0);
    }
    refuse(at("snapshot"), at("far"), 1, PLEACH_ERR_ARGUMENT, "holds files of the source");
    assert_same_folder(at("far.partial"), TIED);
}

static void test_existing_output(void **state)
{
    (void)state;
    pleach_quantize_settings s = bits(2);
    assert_ok(pleach_quantize(at("source"), at("first"), &s, NULL, err));
    refuse(at("source"), at("first"), 0, PLEACH_ERR_EXISTS, "exists already");
    /* A file, also a hard link of the source's, and a symbolic link to some folder. */
    assert_int_equal(link(at("source/model.safetensors"), at("hard")), 0);
    for (int force = 0; force <= 1; force++)
        refuse(at("source"), at("hard"), force, PLEACH_ERR_ARGUMENT, "files of the source");
    assert_int_equal(symlink("first", at("alias")), 0);
    refuse(at("source"), at("alias"), 1, PLEACH_ERR_EXISTS, "not a folder");
    /* Folders that are no model are never removed. */
    assert_ok(pl_write_file(at("aside/thesis.txt"), "words", 5, err));
    refuse(at("source"), at("aside"), 1, PLEACH_ERR_EXISTS, "no config.json");
    assert_ok(pl_write_file(at("aside/config.json"), "{}", 2, err));
    assert_int_equal(mkdir(at("aside/inner"), 0777), 0);
    refuse(at("source"), at("aside"), 1, PLEACH_ERR_EXISTS, "folders inside");
    assert_true(pl_exists(at("aside/thesis.txt")));
    refuse(at("source"), at("nowhere/out"), 0, PLEACH_ERR_MISSING, "nowhere");
}

static void test_force(void **state)
{
    (void)state;
    pleach_quantize_settings s = bits(3);
    s.force = 1;
    assert_ok(pleach_quantize(at("source"), at("first"), &s, NULL, err));
    assert_ok(pleach_quantize(at("source"), at("second"), &s, NULL, err));
    assert_same_folder(at("first"), at("second"));
    assert_false(pl_exists(at("first.partial")));
    assert_int_equal(mkdir(at("empty"), 0777), 0);
    assert_ok(pleach_quantize(at("source"), at("empty"), &s, NULL, err));
    assert_same_folder(at("first"), at("empty"));
}

static void test_dequantize_paths(void **state)
{
    (void)state;
    pleach_checkpoint *c;
    assert_ok(pleach_checkpoint_open(at("first"), &c, err));
    assert_refused(pleach_checkpoint_dequantize(c, at("first"), 1, err), PLEACH_ERR_ARGUMENT,
                   "itself");
    assert_refused(pleach_checkpoint_dequantize(c, at("second"), 0, err), PLEACH_ERR_EXISTS,
                   "exists already");
    assert_refused(pleach_checkpoint_dequantize(c, at("first/out"), 1, err), PLEACH_ERR_ARGUMENT,
                   "inside the source");
    /* Work of the quantiser in the same place is left alone. */
    assert_int_equal(mkdir(at("third.partial"), 0777), 0);
    assert_ok(pl_write_file(at("third.partial/job.json"), "{\"work\": \"quantize\"}", 20, err));
    assert_ok(pl_write_file(at("third.partial/finished.safetensors"), "", 0, err));
    assert_refused(pleach_checkpoint_dequantize(c, at("third"), 1, err), PLEACH_ERR_MISMATCH,
                   "work is \"quantize\" there");
    pleach_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_output_is_source), cmocka_unit_test(test_one_inside_the_other),
        cmocka_unit_test(test_existing_output),  cmocka_unit_test(test_force),
        cmocka_unit_test(test_dequantize_paths),
    };
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
