/* SPDX-License-Identifier: Apache-2.0
 *
 * Safetensors: what the reader refuses and with which words, and what the writer writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/memory.h"
#include "format/safetensors.h"
#include "scratch.h"

/* A file in memory: header length, header, data bytes of value 0. */
static pleach_status open_header(const char *header, uint64_t length, size_t data,
                                 pl_safetensors **s, pleach_error *err, uint8_t **file)
{
    size_t text = strlen(header);
    *file = test_calloc(8 + text + data, 1);
    for (int i = 0; i < 8; i++) (*file)[i] = (uint8_t)(length >> 8 * i);
    memcpy(*file + 8, header, text);
    return pl_safetensors_open_memory("file", *file, 8 + text + data, s, err);
}

static void refuse(const char *header, uint64_t length, size_t data, const char *message)
{
    pl_safetensors *s;
    pleach_error err = {0};
    uint8_t *file;
    pleach_status status = open_header(header, length, data, &s, &err, &file);
    if (status == PLEACH_OK || !strstr(err.message, message))
        fail_msg("%.60s: '%s' does not say '%s'", header, err.message, message);
    assert_null(s);
    assert_int_equal(err.code, status);
    test_free(file);
}

static void refuse_text(const char *header, size_t data, const char *message)
{
    refuse(header, strlen(header), data, message);
}

static void bad_header_lengths_are_refused(void **state)
{
    (void)state;
    refuse("{}", UINT64_MAX, 0, "18446744073709551615 bytes, expected at most 104857600");
    refuse("{}", (uint64_t)1 << 63, 0, "expected at most");
    refuse("{}", 101u << 20, 0, "expected at most");
    refuse("{}", 3, 0, "but only 2 bytes follow"); /* the file's size less 7 */
    refuse("{}", 0, 0, "does not begin with '{'");
    pl_safetensors *s;
    pleach_error err;
    assert_int_equal(pl_safetensors_open_memory("f", "1234567", 7, &s, &err), PLEACH_ERR_FORMAT);
    assert_int_equal(pl_safetensors_open_memory("f", NULL, 0, &s, &err), PLEACH_ERR_FORMAT);
}

static void bad_json_is_refused(void **state)
{
    (void)state;
    refuse_text("[1]", 0, "does not begin with '{'");
    refuse_text(" {}", 0, "does not begin with '{'");
    refuse_text("{\"a\":", 0, "malformed JSON");
    refuse_text("{\"\xff\xfe\":1}", 0, "malformed JSON");
    refuse_text("{} x", 0, "malformed JSON");
    refuse_text("{\"a\":1,\"a\":1}", 0, "duplicate");
    refuse_text("{\"a\\u0000\":1}", 0, "malformed JSON");
    refuse_text("{\"a\":[]}", 0, "tensor a: found an array");
    refuse_text("{\"__metadata__\":{\"x\":1}}", 0, "entry x is an integer");
    refuse_text("{\"__metadata__\":[]}", 0, "__metadata__ is an array");
    char *deep = test_malloc(1000010);
    memcpy(deep, "{\"a\":", 5);
    memset(deep + 5, '[', 1000000);
    deep[1000005] = 0;
    refuse_text(deep, 0, "maximum parsing depth");
    test_free(deep);
}

static void bad_entries_are_refused(void **state)
{
    (void)state;
    const char *const entries[][2] = {
        {"\"dtype\":\"F32\",\"shape\":[1000,1000],\"data_offsets\":[0,4]", "cover 4"},
        {"\"dtype\":\"F32\",\"shape\":[1,1,1,1,1],\"data_offsets\":[0,4]", "at most 4"},
        {"\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]", "entry 0 is not"},
        {"\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]", "entry 0 is not"},
        {"\"dtype\":\"F32\",\"shape\":[1e400],\"data_offsets\":[0,4]", "malformed JSON"},
        {"\"dtype\":\"F32\",\"shape\":[18446744073709551616],\"data_offsets\":[0,4]", "too big"},
        {"\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]", "too large"},
        {"\"dtype\":\"F32\",\"shape\":[9223372036854775807,0,9],\"data_offsets\":[0,0]", "but 4 bytes follow"},
        {"\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]", "not a range"},
        {"\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]", "not a range"},
        {"\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]", "at most 2"},
        {"\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]", "truncated?"},
        {"\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[9223372036854775803,9223372036854775807]",
         "truncated?"},
        {"\"dtype\":\"Q9\",\"shape\":[1],\"data_offsets\":[0,4]", "dtype 'Q9' is not supported"},
        {"\"shape\":[1],\"data_offsets\":[0,4]", "dtype is missing"},
        {"\"dtype\":\"F32\",\"data_offsets\":[0,4]", "shape is nothing"},
        {"\"dtype\":\"F32\",\"shape\":[1]", "data_offsets is nothing"},
    };
    for (size_t i = 0; i < PL_COUNT(entries); i++) {
        char header[300];
        snprintf(header, sizeof header, "{\"a\":{%s}}", entries[i][0]);
        refuse_text(header, 4, entries[i][1]);
    }
}

#define F32(name, from, to)                                                                        \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" #from "," #to "]}"

static void places_must_cover_the_data(void **state)
{
    (void)state;
    refuse_text("{" F32("a", 0, 4) "," F32("b", 8, 12) "}", 12, "tensor b leaves a hole");
    refuse_text("{" F32("a", 4, 8) "}", 8, "tensor a leaves a hole");
    refuse_text("{" F32("a", 0, 4) "," F32("b", 0, 4) "}", 4, "overlaps");
    refuse_text("{" F32("a", 0, 4) "," F32("b", 3, 7) "}", 7, "overlaps");
    refuse_text("{" F32("a", 0, 4) "}", 5, "but 5 bytes follow");
    refuse_text("{}", 1, "but 1 bytes follow");
}

static void legal_files_are_read(void **state)
{
    (void)state;
    pl_safetensors *s;
    pleach_error err;
    uint8_t *file;
    /* Entries in another order than the data, an empty tensor, a scalar, trailing blanks. */
    const char *header = "{\"__metadata__\":{\"format\":\"mlx\"}," F32("b", 4, 8) "," F32("a", 0, 4) ","
                         "\"e\":{\"dtype\":\"BF16\",\"shape\":[0,8],\"data_offsets\":[8,8]},"
                         "\"s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[8,9]}}   ";
    assert_int_equal(open_header(header, strlen(header), 9, &s, &err, &file), PLEACH_OK);
    assert_int_equal(pl_safetensors_count(s), 4);
    assert_string_equal(pl_safetensors_tensor(s, 0)->name, "a");
    assert_string_equal(pl_safetensors_metadata(s, "format"), "mlx");
    assert_null(pl_safetensors_metadata(s, "other"));
    assert_null(pl_safetensors_find(s, "c"));
    const pl_tensor *e = pl_safetensors_find(s, "e");
    assert_int_equal(pl_tensor_elements(e), 0);
    assert_int_equal(pl_tensor_elements(pl_safetensors_find(s, "s")), 1);
    pl_safetensors_close(s);
    test_free(file);
}

/* ---- writing ------------------------------------------------------------------------------- */

static const pl_tensor declared[] = {
    {.name = "w \"quoted\" é", .type = PL_BF16, .n_dims = 2, .shape = {2, 3}},
    {.name = "codes", .type = PL_U32, .n_dims = 3, .shape = {1, 2, 2}},
    {.name = "scalar", .type = PL_F32},
};

static void what_is_written_is_read(void **state)
{
    (void)state;
    scratch dir;
    scratch_open(&dir);
    const char *path = scratch_path(&dir, "out.safetensors");
    pl_safetensors_writer *w;
    pleach_error err;
    uint8_t data[32];
    for (int i = 0; i < 32; i++) data[i] = (uint8_t)i;
    assert_int_equal(pl_safetensors_create(path, declared, 3, &w, &err), PLEACH_OK);
    assert_int_equal(pl_safetensors_append(w, data, 5, &err), PLEACH_OK);
    assert_false(pl_exists(path)); /* not under its name before it is whole */
    assert_int_equal(pl_safetensors_append(w, data + 5, 27, &err), PLEACH_OK);
    assert_int_equal(pl_safetensors_commit(w, &err), PLEACH_OK);
    pl_safetensors *s;
    assert_int_equal(pl_safetensors_open(path, &s, &err), PLEACH_OK);
    assert_int_equal(pl_safetensors_count(s), 3);
    for (size_t i = 0; i < 3; i++) {
        const pl_tensor *t = pl_safetensors_find(s, declared[i].name);
        assert_non_null(t);
        assert_int_equal(t->type, declared[i].type);
        assert_int_equal(t->n_dims, declared[i].n_dims);
        assert_memory_equal(t->shape, declared[i].shape, sizeof t->shape);
    }
    assert_memory_equal(pl_safetensors_tensor(s, 0)->data, data, 32);
    assert_string_equal(pl_safetensors_metadata(s, "format"), "pt");
    pl_safetensors_close(s);
    scratch_close(&dir);
}

static void a_wrong_amount_of_bytes_leaves_no_file(void **state)
{
    (void)state;
    scratch dir;
    scratch_open(&dir);
    const char *path = scratch_path(&dir, "out.safetensors");
    pl_safetensors_writer *w;
    pleach_error err;
    uint8_t data[33] = {0};
    assert_int_equal(pl_safetensors_create(path, declared, 3, &w, &err), PLEACH_OK);
    assert_int_equal(pl_safetensors_append(w, data, 33, &err), PLEACH_ERR_ARGUMENT);
    assert_int_equal(pl_safetensors_append(w, data, 31, &err), PLEACH_OK);
    assert_int_equal(pl_safetensors_commit(w, &err), PLEACH_ERR_ARGUMENT);
    assert_false(pl_exists(path));
    assert_int_equal(pl_safetensors_create(path, declared, 3, &w, &err), PLEACH_OK);
    pl_safetensors_discard(w);
    assert_false(pl_exists(path));
    assert_int_equal(rmdir(dir.dir), 0); /* nothing left in it */
}

static void undeclarable_tensors_are_refused(void **state)
{
    (void)state;
    pl_safetensors_writer *w;
    pleach_error err;
    const pl_tensor twice[] = {{.name = "a", .type = PL_F32}, {.name = "a", .type = PL_F32}};
    const pl_tensor blocks = {.name = "q", .type = PL_Q4_0, .n_dims = 1, .shape = {32}};
    const pl_tensor huge = {.name = "h", .type = PL_F32, .n_dims = 2,
                            .shape = {(uint64_t)1 << 33, (uint64_t)1 << 33}};
    assert_int_equal(pl_safetensors_create("/nowhere", twice, 2, &w, &err), PLEACH_ERR_ARGUMENT);
    assert_int_equal(pl_safetensors_create("/nowhere", &blocks, 1, &w, &err),
                     PLEACH_ERR_UNSUPPORTED);
    assert_int_equal(pl_safetensors_create("/nowhere", &huge, 1, &w, &err), PLEACH_ERR_SHAPE);
    assert_null(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_header_lengths_are_refused),
        cmocka_unit_test(bad_json_is_refused),
        cmocka_unit_test(bad_entries_are_refused),
        cmocka_unit_test(places_must_cover_the_data),
        cmocka_unit_test(legal_files_are_read),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(a_wrong_amount_of_bytes_leaves_no_file),
        cmocka_unit_test(undeclarable_tensors_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
