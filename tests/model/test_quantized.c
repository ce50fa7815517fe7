/* SPDX-License-Identifier: Apache-2.0
 *
 * Golden checkpoints quantised, opened and run: near the original, nearer with every bit; and
 * written out as bf16, near the packed model. */
#include "quantised_model.h"

static const char *const names[] = {"llama-tied", "llama-rope3", "qwen2-bias", "qwen3-qknorm",
                                    "mistral-swa", "gemma3", "qwen3-moe"};
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
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        golden g = open_golden(names[i]);
        double four = quantised_distance(names[i], &g, 4, PLEACH_ROTATE_BOTH);
        double two = quantised_distance(names[i], &g, 2, PLEACH_ROTATE_INPUT_SCALE);
        print_message("%s: %.4f at 4 bits, %.4f at 2\n", names[i], four, two);
        if (!(four < .45 && two < 1.1 && four < two * .5))
            fail_msg("%s: %g at 4 bits, %g at 2", names[i], four, two);
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
