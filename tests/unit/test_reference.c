/* SPDX-License-Identifier: Apache-2.0
 *
 * The library against the second decoder of docs/reference, which is written from docs/format.md
 * alone: every geometry on random words, the golden matrices, a folder that MLX wrote, and folders
 * that Pleach writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/half.h"
#include "base/random.h"
#include "format/checkpoint.h"
#include "format/safetensors.h"
#include "pleach/quantize.h"
#include "pleach/trellis.h"
#include "reference/decoder.h"

/* Both contracts of one geometry. Scales: a normal one, denormal, zero, negative. */
static void compare_geometry(uint32_t k, uint32_t L, uint32_t T, uint32_t interleaved,
                             uint64_t *random)
{
    enum { ROWS = 4 };
    static const uint16_t scales[ROWS] = {0x3a57, 0x0003, 0x0000, 0xb123};
    pleach_trellis t = {.bits = k, .state_bits = L, .block = T, .axis = 0,
                        .interleaved = interleaved, .rows = ROWS, .cols = 4 * T};
    ref_trellis ref = {.k = k, .L = L, .T = T, .interleaved = interleaved, .rows = ROWS,
                       .cols = 4 * T};
    size_t n = ROWS * 4 * T, n_words = pleach_trellis_words(&t);
    uint32_t *words = calloc(n_words, sizeof *words);
    uint16_t *expanded = calloc(n, sizeof *expanded);
    float *decoded = calloc(n, sizeof *decoded);
    assert_non_null(words);
    assert_non_null(expanded);
    assert_non_null(decoded);
    for (size_t i = 0; i < n_words; i++) words[i] = (uint32_t)pl_random_next(random);

    assert_int_equal(pleach_trellis_decode(&t, decoded, words, scales), PLEACH_OK);
    assert_int_equal(pleach_trellis_expand(&t, expanded, words, scales), PLEACH_OK);
    for (uint64_t r = 0; r < t.rows; r++)
        for (uint64_t c = 0; c < t.cols; c++) {
            float d = ref_number(&ref, words, scales, r, c, REF_DECODE);
            float e = ref_number(&ref, words, scales, r, c, REF_EXPAND);
            assert_int_equal(pl_f32_bits(decoded[r * t.cols + c]), pl_f32_bits(d));
            assert_int_equal(pl_f32_bits(pl_bf16_to_f32(expanded[r * t.cols + c])), pl_f32_bits(e));
        }
    free(words);
    free(expanded);
    free(decoded);
}

static void test_every_geometry(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (uint32_t k = 2; k <= 4; k++)
        for (uint32_t L = 12; L <= 16; L += 4)
            for (uint32_t T = 32; T <= 1024; T += 32) compare_geometry(k, L, T, 0, &random);
    compare_geometry(3, 12, 256, 1, &random);
}

/* ---- golden matrices ------------------------------------------------------------------------ */

static unsigned metadata(const pl_safetensors *s, const char *key)
{
    const char *value = pl_safetensors_metadata(s, key);
    assert_non_null(value);
    return (unsigned)strtoul(value, NULL, 10);
}

/* A tensor's bytes in fresh memory, aligned. */
static void *copy_tensor(const pl_safetensors *s, const char *name)
{
    const pl_tensor *t = pl_safetensors_find(s, name);
    assert_non_null(t);
    void *copy = malloc((size_t)t->n_bytes);
    assert_non_null(copy);
    return memcpy(copy, t->data, (size_t)t->n_bytes);
}

static void compare_golden(const char *name)
{
    char path[256];
    pleach_error err = {0};
    pl_safetensors *s;
    snprintf(path, sizeof path, PLEACH_TEST_DATA "/golden/trellis/trellis_%s.safetensors", name);
    if (pl_safetensors_open(path, &s, &err) != PLEACH_OK) fail_msg("%s", err.message);
    ref_trellis t = {.k = metadata(s, "k"), .L = metadata(s, "L"), .T = metadata(s, "T"),
                     .interleaved = pl_safetensors_find(s, "codes")->n_dims == 3,
                     .rows = metadata(s, "rows"), .cols = metadata(s, "cols")};
    uint32_t *codes = copy_tensor(s, "codes");
    uint16_t *scales = copy_tensor(s, "scales"), *expand = copy_tensor(s, "expand");
    float *decode = copy_tensor(s, "decode");
    for (uint64_t r = 0; r < t.rows; r++)
        for (uint64_t c = 0; c < t.cols; c++) {
            float d = ref_number(&t, codes, scales, r, c, REF_DECODE);
            float e = ref_number(&t, codes, scales, r, c, REF_EXPAND);
            assert_int_equal(pl_f32_bits(d), pl_f32_bits(decode[r * t.cols + c]));
            assert_int_equal(pl_f32_bits(e), (uint32_t)expand[r * t.cols + c] << 16);
        }
    free(codes);
    free(scales);
    free(expand);
    free(decode);
    pl_safetensors_close(s);
}

static void test_goldens(void **state)
{
    (void)state;
    static const char *const names[] = {
        "k2_t256_axis0", "k2_t256_axis1", "k3_t128_l16_axis1", "k3_t192_axis1", "k3_t256_axis1",
        "k3_t256_axis0_interleaved", "k4_t256_axis0", "k4_t256_axis1", "k4_t256_l16_axis0",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) compare_golden(names[i]);
}

/* ---- modules of a folder -------------------------------------------------------------------- */

static void assert_ok(pleach_status status, const pleach_error *err)
{
    if (status != PLEACH_OK) fail_msg("%s", err->message);
}

static ref_matrix read_reference(const char *folder, const char *module, ref_contract contract,
                                 int whole)
{
    ref_matrix m;
    char line[512];
    if (ref_read_module(folder, module, contract, whole, &m, line, sizeof line))
        fail_msg("%s", line);
    return m;
}

/* W' of a trellis module under both contracts, to the bit. */
static void compare_coded(const char *folder, const char *module, const pl_weight *w)
{
    const pleach_trellis *t = &w->trellis;
    size_t n = (size_t)(t->rows * t->cols);
    uint32_t *words = malloc((size_t)w->weight->n_bytes);
    uint16_t *scales = malloc((size_t)w->scales->n_bytes), *expanded = malloc(n * sizeof *expanded);
    float *decoded = malloc(n * sizeof *decoded);
    assert_true(words && scales && expanded && decoded);
    memcpy(words, w->weight->data, (size_t)w->weight->n_bytes);
    memcpy(scales, w->scales->data, (size_t)w->scales->n_bytes);
    assert_int_equal(pleach_trellis_decode(t, decoded, words, scales), PLEACH_OK);
    assert_int_equal(pleach_trellis_expand(t, expanded, words, scales), PLEACH_OK);

    ref_matrix d = read_reference(folder, module, REF_DECODE, 0);
    ref_matrix e = read_reference(folder, module, REF_EXPAND, 0);
    assert_int_equal(d.out, w->out);
    assert_int_equal(d.in, w->in);
    for (uint64_t o = 0; o < w->out; o++)
        for (uint64_t i = 0; i < w->in; i++) {
            uint64_t at = t->axis ? o * t->cols + i : i * t->cols + o;
            assert_int_equal(pl_f32_bits(d.w[o * w->in + i]), pl_f32_bits(decoded[at]));
            assert_int_equal(pl_f32_bits(e.w[o * w->in + i]), (uint32_t)expanded[at] << 16);
        }
    free(d.w);
    free(e.w);
    free(words);
    free(scales);
    free(expanded);
    free(decoded);
}

/* W itself: to the bit where nothing is rotated, else within rounding. */
static void compare_whole(const char *folder, const char *module, const pl_weight *w)
{
    pleach_error err;
    size_t n = (size_t)(w->out * w->in);
    float *got = malloc(n * sizeof *got), largest = 0;
    assert_non_null(got);
    assert_ok(pl_weight_dense_f32(w, got, &err), &err);
    ref_matrix m = read_reference(folder, module, REF_DECODE, 1);
    assert_int_equal(m.out, w->out);
    assert_int_equal(m.in, w->in);
    for (size_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(m.w[i]));
    assert_true(largest > 0);
    float bound = w->rotate_in.block || w->rotate_out.block || w->output_scale ? 2e-6f * largest : 0;
    for (size_t i = 0; i < n; i++) assert_true(fabsf(got[i] - m.w[i]) <= bound);
    free(m.w);
    free(got);
}

/* Every module of the model. Counts codings, and the extensions that were met. */
typedef struct census {
    size_t codings[3], rotated_in, rotated_out, scaled, padded, interleaved;
} census;

static census compare_folder(const char *folder)
{
    census n = {0};
    pleach_error err;
    pleach_checkpoint *c;
    const pl_config *config;
    assert_ok(pleach_checkpoint_open(folder, &c, &err), &err);
    assert_ok(pl_checkpoint_config(c, &config, &err), &err);
    for (size_t i = 0; i < pl_config_module_count(config); i++) {
        pl_module m;
        pl_weight w;
        pl_config_module(config, i, &m);
        assert_ok(pl_checkpoint_weight(c, m.name, m.out, m.in, &w, &err), &err);
        if (w.coding == PL_CODING_TRELLIS) compare_coded(folder, m.name, &w);
        compare_whole(folder, m.name, &w);
        n.codings[w.coding]++;
        n.rotated_in += w.rotate_in.block > 1;
        n.rotated_out += w.rotate_out.block > 1;
        n.scaled += w.output_scale != NULL;
        n.interleaved += w.trellis.interleaved;
        n.padded += w.coding == PL_CODING_TRELLIS &&
                    w.trellis.cols != (w.trellis.axis ? w.in : w.out);
    }
    pleach_checkpoint_close(c);
    return n;
}

static void test_mlx_folder(void **state)
{
    (void)state;
    census n = compare_folder(PLEACH_TEST_DATA "/golden/checkpoints/llama-packed");
    assert_int_equal(n.codings[PL_CODING_TRELLIS], 6);
    assert_int_equal(n.codings[PL_CODING_AFFINE], 10);
    assert_int_equal(n.interleaved, 2);
}

/* ---- folders that Pleach writes ------------------------------------------------------------- */

static char work[] = "/tmp/pleach-reference-XXXXXX";
static char source[64], packed[64];

/* A model of one layer whose widths ask for padding: 200 becomes 224. */
static int make_source(void **state)
{
    (void)state;
    static const char config[] =
        "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 96,"
        " \"intermediate_size\": 200, \"num_hidden_layers\": 1, \"num_attention_heads\": 3,"
        " \"num_key_value_heads\": 1, \"head_dim\": 32, \"vocab_size\": 70, \"rms_norm_eps\": 1e-6,"
        " \"max_position_embeddings\": 64, \"rope_theta\": 10000.0, \"hidden_act\": \"silu\","
        " \"tie_word_embeddings\": true}";
#define LAYER "model.layers.0."
    static const pl_tensor tensors[] = {
        {.name = "model.embed_tokens.weight", .n_dims = 2, .shape = {70, 96}},
        {.name = "model.norm.weight", .n_dims = 1, .shape = {96}},
        {.name = LAYER "input_layernorm.weight", .n_dims = 1, .shape = {96}},
        {.name = LAYER "post_attention_layernorm.weight", .n_dims = 1, .shape = {96}},
        {.name = LAYER "self_attn.q_proj.weight", .n_dims = 2, .shape = {96, 96}},
        {.name = LAYER "self_attn.k_proj.weight", .n_dims = 2, .shape = {32, 96}},
        {.name = LAYER "self_attn.v_proj.weight", .n_dims = 2, .shape = {32, 96}},
        {.name = LAYER "self_attn.o_proj.weight", .n_dims = 2, .shape = {96, 96}},
        {.name = LAYER "mlp.gate_proj.weight", .n_dims = 2, .shape = {200, 96}},
        {.name = LAYER "mlp.up_proj.weight", .n_dims = 2, .shape = {200, 96}},
        {.name = LAYER "mlp.down_proj.weight", .n_dims = 2, .shape = {96, 200}},
    };
    enum { N = sizeof tensors / sizeof tensors[0] };
    pl_tensor declared[N];
    pleach_error err;
    pl_safetensors_writer *w;
    char path[128];
    uint64_t random = 7;
    if (!mkdtemp(work)) return -1;
    snprintf(source, sizeof source, "%s/source", work);
    snprintf(packed, sizeof packed, "%s/packed", work);
    if (mkdir(source, 0777) != 0) return -1;
    snprintf(path, sizeof path, "%s/config.json", source);
    assert_ok(pl_write_file(path, config, strlen(config), &err), &err);
    snprintf(path, sizeof path, "%s/model.safetensors", source);
    memcpy(declared, tensors, sizeof declared);
    for (size_t i = 0; i < N; i++) declared[i].type = PL_F32; /* and sizes follow from shapes */
    assert_ok(pl_safetensors_create(path, declared, N, &w, &err), &err);
    for (size_t i = 0; i < N; i++) {
        uint64_t n = tensors[i].shape[0] * (tensors[i].n_dims == 2 ? tensors[i].shape[1] : 1);
        for (uint64_t j = 0; j < n; j++) {
            float f = (float)(pl_random_unit(&random) + pl_random_unit(&random) - 1);
            assert_ok(pl_safetensors_append(w, &f, sizeof f, &err), &err);
        }
    }
    assert_ok(pl_safetensors_commit(w, &err), &err);
    return 0;
}

static int remove_work(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", work);
    return system(command);
}

static census pack(uint32_t bits, int axis, uint32_t state_bits, pleach_rotate rotate)
{
    pleach_error err;
    pleach_quantize_settings s;
    pleach_quantize_settings_defaults(&s);
    s.bits = bits;
    s.axis = axis;
    s.state_bits = state_bits;
    s.rotate = rotate;
    s.force = 1;
    assert_ok(pleach_quantize(source, packed, &s, NULL, &err), &err);
    census n = compare_folder(packed);
    assert_int_equal(n.codings[PL_CODING_TRELLIS], 7);
    assert_int_equal(n.codings[PL_CODING_AFFINE], 1);
    assert_int_equal(n.padded, axis ? 1 : 2);
    return n;
}

static void test_packed_unrotated(void **state)
{
    (void)state;
    for (int axis = 0; axis < 2; axis++)
        for (uint32_t bits = 2; bits <= 4; bits++) {
            census n = pack(bits, axis, 12, PLEACH_ROTATE_NONE);
            assert_int_equal(n.rotated_in, 0);
        }
}

static void test_packed_rotated(void **state)
{
    (void)state;
    for (int axis = 0; axis < 2; axis++) {
        census n = pack(3, axis, 12, PLEACH_ROTATE_INPUT);
        assert_int_equal(n.rotated_in, 7);
        assert_int_equal(n.rotated_out, 0);
        n = pack(3, axis, 12, PLEACH_ROTATE_BOTH);
        assert_int_equal(n.rotated_out, 7);
    }
    census n = pack(4, 0, 12, PLEACH_ROTATE_INPUT_SCALE);
    assert_int_equal(n.scaled, 7);
}

static void test_packed_long_state(void **state)
{
    (void)state;
    pack(2, 0, 16, PLEACH_ROTATE_BOTH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_geometry),    cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_mlx_folder),        cmocka_unit_test(test_packed_unrotated),
        cmocka_unit_test(test_packed_rotated),    cmocka_unit_test(test_packed_long_state),
    };
    return cmocka_run_group_tests(tests, make_source, remove_work);
}
