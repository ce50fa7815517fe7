/* SPDX-License-Identifier: Apache-2.0
 *
 * Golden checkpoints quantised, opened and run: near the original, nearer with every bit; and
 * written out as bf16, near the packed model. */
#include "quantised_model.h"

/* most: the distance at 4 bits; share: of the one at 2 bits. A router picks other experts for a
 * small error, which then is a large one. */
static const struct {
    const char *name;
    double most, share;
} models[] = {{"llama-tied", .45, .5},   {"llama-rope3", .45, .5},  {"qwen2-bias", .45, .5},
              {"qwen3-qknorm", .45, .5}, {"mistral-swa", .45, .5},  {"gemma3", .45, .5},
              {"qwen3-moe", .45, .5},    {"qwen35-hybrid", .5, .5}, {"qwen35-moe", .65, .6}};

static double quantised_distance(const char *name, const golden *g, uint32_t bits,
                                   pleach_rotate rotate)
{
    char source[512];
    pleach_quantize_settings s;
    pleach_quantize_settings_defaults(&s);
    s.bits = bits;
    s.rotate = rotate;
    s.threads = 2;
    s.force = 1;
    snprintf(source, sizeof source, CHECKPOINTS "%s", name);
    must(pleach_quantize(source, in_work("packed"), &s, NULL, &err));
    float *logits = logits_of(in_work("packed"), g);
    double d = distance(g->logits, logits, g->n * g->vocab);
    pl_free(logits);
    return d;
}

static void test_distance(void **state)
{
    (void)state;
    for (size_t i = 0; i < PL_COUNT(models); i++) {
        const char *name = models[i].name;
        golden g = open_golden(name);
        double four = quantised_distance(name, &g, 4, PLEACH_ROTATE_BOTH);
        double two = quantised_distance(name, &g, 2, PLEACH_ROTATE_INPUT_SCALE);
        print_message("%s: %.4f at 4 bits, %.4f at 2\n", name, four, two);
        if (!(four < models[i].most && two < 1.1 && four < two * models[i].share))
            fail_msg("%s: %g at 4 bits, %g at 2", name, four, two);
        close_golden(&g);
    }
}

static void test_dequantized(void **state)
{
    (void)state;
    golden g = open_golden("llama-rope3");
    quantised_distance("llama-rope3", &g, 3, PLEACH_ROTATE_BOTH);
    pleach_checkpoint *c;
    must(pleach_checkpoint_open(in_work("packed"), &c, &err));
    must(pleach_checkpoint_dequantize(c, in_work("plain"), 1, &err));
    pleach_checkpoint_close(c);
    float *packed = logits_of(in_work("packed"), &g), *plain = logits_of(in_work("plain"), &g);
    double d = distance(packed, plain, g.n * g.vocab);
    print_message("bf16 from packed: %.4f\n", d);
    assert_true(d < .01);
    pl_free(plain);
    pl_free(packed);
    close_golden(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distance),
        cmocka_unit_test(test_dequantized),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
