/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF: hostile counts and types are refused by name, metadata comes back as it was written, and
 * a file made by the gguf package gives the weights and the config of its model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/half.h"
#include "base/memory.h"
#include "format/gguf.h"
#include "format/safetensors.h"

#define FORMATS PLEACH_TEST_DATA "/golden/formats/"

/* ---- a file written by hand ---------------------------------------------------------------- */

typedef struct image {
    uint8_t bytes[4096];
    size_t n;
} image;

static void put(image *f, const void *p, size_t n)
{
    assert_true(f->n + n <= sizeof f->bytes);
    memcpy(f->bytes + f->n, p, n);
    f->n += n;
}

static void u32(image *f, uint32_t v) { put(f, &v, 4); }
static void u64(image *f, uint64_t v) { put(f, &v, 8); }

static void text(image *f, const char *s)
{
    u64(f, strlen(s));
    put(f, s, strlen(s));
}

static void header(image *f, uint32_t version, uint64_t tensors, uint64_t values)
{
    f->n = 0;
    put(f, "GGUF", 4);
    u32(f, version);
    u64(f, tensors);
    u64(f, values);
}

static void key(image *f, const char *name, pl_gguf_type type)
{
    text(f, name);
    u32(f, type);
}

static void tensor(image *f, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *dims,
                   uint64_t offset)
{
    text(f, name);
    u32(f, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) u64(f, dims[i]);
    u32(f, type);
    u64(f, offset);
}

static void pad(image *f, size_t data)
{
    static const uint8_t zeros[512];
    put(f, zeros, (32 - f->n % 32) % 32 + data);
}

/* Opens a copy of exactly the file's size, so that a sanitizer sees the first byte past it. */
static pleach_status open_image(const image *f, pl_gguf **g, uint8_t **copy, pleach_error *err)
{
    *copy = test_malloc(f->n ? f->n : 1);
    memcpy(*copy, f->bytes, f->n);
    return pl_gguf_open_memory("file", *copy, f->n, g, err);
}

static void refuse(const image *f, const char *message)
{
    pl_gguf *g;
    uint8_t *copy;
    pleach_error err = {0};
    pleach_status status = open_image(f, &g, &copy, &err);
    if (status == PLEACH_OK || !strstr(err.message, message))
        fail_msg("'%s' does not say '%s'", err.message, message);
    assert_null(g);
    test_free(copy);
}

/* ---- refusals ------------------------------------------------------------------------------ */

static void hostile_headers_are_refused(void **state)
{
    (void)state;
    image f;
    f.n = 0;
    refuse(&f, "expected a folder or a GGUF file");
    put(&f, "GGML0000", 8);
    refuse(&f, "expected a folder or a GGUF file");
    header(&f, 1, 0, 0);
    refuse(&f, "GGUF version 1");
    header(&f, 3u << 24, 0, 0);
    refuse(&f, "big-endian");
    header(&f, 3, UINT64_MAX / 400, 0); /* a count whose product with a larger size overflows */
    refuse(&f, "tensors cannot be in the 8 bytes");
    header(&f, 3, 0, (uint64_t)1 << 60);
    refuse(&f, "metadata entries cannot be in the 0 bytes");
    header(&f, 3, 0, 1);
    u64(&f, (uint64_t)1 << 48); /* the key's length */
    u64(&f, 0);
    refuse(&f, "a metadata key needs 281474976710656 bytes");
}

static void hostile_metadata_is_refused(void **state)
{
    (void)state;
    image f;
    header(&f, 3, 0, 1);
    key(&f, "k", (pl_gguf_type)13);
    u64(&f, 0);
    refuse(&f, "metadata k has unknown type 13");
    header(&f, 3, 0, 1);
    key(&f, "k", PL_GGUF_ARRAY);
    u32(&f, PL_GGUF_U32);
    u64(&f, 500000000);
    refuse(&f, "500000000 metadata k cannot be");
    header(&f, 3, 0, 1);
    key(&f, "k", PL_GGUF_ARRAY);
    u32(&f, PL_GGUF_STRING);
    u64(&f, 2);
    text(&f, "ab");
    u64(&f, 7);
    refuse(&f, "metadata k needs 7 bytes");
    header(&f, 3, 0, 1);
    key(&f, "k", PL_GGUF_ARRAY);
    for (int i = 0; i < 10; i++) {
        u32(&f, PL_GGUF_ARRAY);
        u64(&f, 1);
    }
    refuse(&f, "nests arrays too deeply");
    header(&f, 3, 0, 2);
    for (int i = 0; i < 2; i++) {
        key(&f, "twice", PL_GGUF_U8);
        put(&f, "", 1);
    }
    refuse(&f, "metadata twice occurs twice");
    header(&f, 3, 0, 1);
    key(&f, "general.alignment", PL_GGUF_U32);
    u32(&f, 0);
    refuse(&f, "general.alignment is not a power of two");
    header(&f, 3, 0, 1);
    key(&f, "split.count", PL_GGUF_U16);
    put(&f, "\3\0", 2);
    refuse(&f, "one of 3 split GGUF files");
}

static void hostile_tensors_are_refused(void **state)
{
    (void)state;
    image f;
    const uint64_t overflow[] = {INT64_MAX, 2}, zero[] = {0, 8}, square[] = {8, 8}, odd[] = {33, 1};
    header(&f, 3, 1, 0);
    tensor(&f, "w", 24, 2, overflow, 0);
    refuse(&f, "tensor w needs 18446744073709551614 bytes");
    header(&f, 3, 1, 0);
    tensor(&f, "w", 0, 2, overflow, 0);
    refuse(&f, "shape [2, 9223372036854775807] is too large");
    header(&f, 3, 1, 0);
    tensor(&f, "w", 0, 2, zero, 0);
    refuse(&f, "tensor w has a dimension of 0");
    header(&f, 3, 1, 0);
    tensor(&f, "w", 2, 2, odd, 0);
    refuse(&f, "no whole blocks of Q4_0");
    header(&f, 3, 1, 0);
    tensor(&f, "w", 23, 2, square, 0);
    refuse(&f, "tensor w has type IQ4_XS (23)");
    header(&f, 3, 1, 0);
    tensor(&f, "w", 1000, 2, square, 0);
    refuse(&f, "tensor w has type unknown (1000)");
    for (uint32_t n = 0; n < 6; n += 5) {
        const uint64_t dims[5] = {1, 1, 1, 1, 1};
        header(&f, 3, 1, 0);
        tensor(&f, "long-enough", 0, n, dims, 0);
        refuse(&f, "dimensions, expected 1 to 4");
    }
    header(&f, 3, 1, 0);
    tensor(&f, "w", 0, 2, square, 4);
    pad(&f, 260);
    refuse(&f, "no multiple of 32");
    header(&f, 3, 1, 0);
    tensor(&f, "w", 0, 2, square, 32);
    pad(&f, 256);
    refuse(&f, "truncated?");
    header(&f, 3, 1, 0);
    tensor(&f, "w", 0, 2, square, (uint64_t)0 - 32);
    pad(&f, 256);
    refuse(&f, "truncated?");
    header(&f, 3, 2, 0);
    tensor(&f, "a", 0, 2, square, 0);
    tensor(&f, "b", 0, 2, square, 32);
    pad(&f, 288);
    refuse(&f, "tensors a and b overlap");
    header(&f, 3, 1, 0);
    tensor(&f, "", 0, 2, square, 0);
    refuse(&f, "a tensor name is empty");
}

/* ---- what is read -------------------------------------------------------------------------- */

static void metadata_keeps_its_types(void **state)
{
    (void)state;
    image f;
    const double half = 0.5;
    header(&f, 2, 0, 6);
    key(&f, "i8", PL_GGUF_I8);
    put(&f, "\xff", 1);
    key(&f, "i64", PL_GGUF_I64);
    u64(&f, (uint64_t)1 << 63);
    key(&f, "f64", PL_GGUF_F64);
    put(&f, &half, 8);
    key(&f, "strings", PL_GGUF_ARRAY);
    u32(&f, PL_GGUF_STRING);
    u64(&f, 3);
    text(&f, "one");
    text(&f, "");
    text(&f, "three");
    key(&f, "types", PL_GGUF_ARRAY); /* u8 where i32 is usual: read by its own width */
    u32(&f, PL_GGUF_U8);
    u64(&f, 3);
    put(&f, "\1\2\xff", 3);
    key(&f, "nested", PL_GGUF_ARRAY);
    u32(&f, PL_GGUF_ARRAY);
    u64(&f, 1);
    u32(&f, PL_GGUF_STRING);
    u64(&f, 1);
    text(&f, "x");
    pl_gguf *g;
    uint8_t *copy;
    pleach_error err = {0};
    if (open_image(&f, &g, &copy, &err) != PLEACH_OK) fail_msg("%s", err.message);

    uint64_t u, n;
    int64_t i;
    double d;
    bool b;
    pl_text t;
    pl_gguf_type type;
    assert_false(pl_gguf_u64(g, "i8", &u)); /* negative */
    assert_true(pl_gguf_f64(g, "i8", &d) && d == -1);
    assert_true(pl_gguf_f64(g, "i64", &d) && d == -0x1p63);
    assert_true(pl_gguf_f64(g, "f64", &d) && d == 0.5);
    assert_false(pl_gguf_u64(g, "f64", &u));
    assert_false(pl_gguf_bool(g, "i8", &b));
    assert_false(pl_gguf_text(g, "strings", &t));
    assert_false(pl_gguf_has(g, "absent"));
    assert_true(pl_gguf_array(g, "strings", &type, &n) && type == PL_GGUF_STRING && n == 3);
    assert_true(pl_gguf_array_text(g, "strings", 2, &t) && t.size == 5);
    assert_memory_equal(t.data, "three", 5);
    assert_true(pl_gguf_array_text(g, "strings", 1, &t) && t.size == 0);
    assert_false(pl_gguf_array_text(g, "strings", 3, &t));
    assert_false(pl_gguf_array_i64(g, "strings", 0, &i));
    assert_false(pl_gguf_array_text(g, "types", 0, &t));
    assert_true(pl_gguf_array(g, "types", &type, &n) && type == PL_GGUF_U8 && n == 3);
    assert_true(pl_gguf_array_i64(g, "types", 2, &i) && i == 255);
    assert_true(pl_gguf_array_f64(g, "types", 2, &d) && d == 255);
    assert_false(pl_gguf_array_i64(g, "types", 3, &i));
    assert_false(pl_gguf_array_f64(g, "nested", 0, &d));
    assert_false(pl_gguf_array_text(g, "nested", 0, &t));
    pl_gguf_close(g);
    test_free(copy);
}

static void a_cut_file_is_refused_wherever_it_is_cut(void **state)
{
    (void)state;
    char *bytes;
    size_t size;
    pleach_error err;
    assert_int_equal(pl_read_file(FORMATS "tiny-llama.gguf", 1 << 20, &bytes, &size, &err),
                     PLEACH_OK);
    for (size_t cut = 0; cut < size; cut += cut < 4000 ? 1 : 997) {
        pl_gguf *g;
        uint8_t *copy = test_malloc(cut ? cut : 1);
        memcpy(copy, bytes, cut);
        assert_int_not_equal(pl_gguf_open_memory("file", copy, cut, &g, &err), PLEACH_OK);
        test_free(copy);
    }
    pl_free(bytes);
}

static void weights_are_in_hugging_face_order(void **state)
{
    (void)state;
    pleach_checkpoint *c;
    pl_safetensors *hf;
    pleach_error err;
    if (pl_checkpoint_open(FORMATS "tiny-llama.gguf", &c, &err) != PLEACH_OK)
        fail_msg("%s", err.message);
    assert_int_equal(pl_safetensors_open(FORMATS "tiny-llama.safetensors", &hf, &err), PLEACH_OK);
    for (size_t i = 0; i < pl_safetensors_count(hf); i++) {
        const pl_tensor *want = pl_safetensors_tensor(hf, i);
        const pl_tensor *t = pl_checkpoint_find(c, want->name);
        if (!t) fail_msg("%s is missing", want->name);
        float a[64], b[64];
        assert_int_equal(pl_tensor_width(t), pl_tensor_width(want));
        assert_int_equal(pl_tensor_rows(t), pl_tensor_rows(want));
        for (uint64_t r = 0; r < pl_tensor_rows(want); r++) {
            pl_tensor_row_f32(t, r, a);
            pl_tensor_row_f32(want, r, b);
            if (memcmp(a, b, 4 * pl_tensor_width(want)) != 0)
                fail_msg("%s: row %d differs", want->name, (int)r);
        }
    }
    pl_safetensors_close(hf);
    pleach_checkpoint_close(c);
}

static void config_comes_from_the_metadata(void **state)
{
    (void)state;
    pleach_checkpoint *c;
    const pl_config *config;
    pleach_error err;
    assert_int_equal(pl_checkpoint_open(FORMATS "tiny-llama.gguf", &c, &err), PLEACH_OK);
    if (pl_checkpoint_config(c, &config, &err) != PLEACH_OK) fail_msg("%s", err.message);
    assert_int_equal(config->arch, PL_ARCH_LLAMA);
    assert_int_equal(config->vocab_size, 8);
    assert_int_equal(config->hidden_size, 64);
    assert_int_equal(config->intermediate_size, 32);
    assert_int_equal(config->n_layers, 1);
    assert_int_equal(config->n_heads, 4);
    assert_int_equal(config->n_kv_heads, 2);
    assert_int_equal(config->head_dim, 16);
    assert_int_equal(config->context_length, 4096);
    assert_true(config->rms_norm_eps == 1e-5f);
    assert_false(config->tie_embeddings);
    assert_true(config->attention_bias && config->output_bias);
    assert_int_equal(config->bos, 1);
    assert_int_equal(config->n_end_tokens, 2);
    assert_int_equal(config->end_tokens[0], 2);
    assert_int_equal(config->end_tokens[1], 5);
    /* llama3's scaling is recognised in its stored divisors. */
    assert_int_equal(config->rope.kind, PL_ROPE_LLAMA3);
    assert_true(config->rope.theta == 500000 && config->rope.factor == 8);
    assert_true(config->rope.original_context == 1024);
    pleach_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_headers_are_refused),
        cmocka_unit_test(hostile_metadata_is_refused),
        cmocka_unit_test(hostile_tensors_are_refused),
        cmocka_unit_test(metadata_keeps_its_types),
        cmocka_unit_test(a_cut_file_is_refused_wherever_it_is_cut),
        cmocka_unit_test(weights_are_in_hugging_face_order),
        cmocka_unit_test(config_comes_from_the_metadata),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
