/* SPDX-License-Identifier: Apache-2.0
 *
 * Routing of tokens to experts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/cpu.h"
#include "model/route.h"

static pl_routes open_routes(size_t capacity, uint32_t n, uint32_t used)
{
    pl_routes r;
    assert_int_equal(pl_routes_open(&r, capacity, n, used, NULL), PLEACH_OK);
    return r;
}

static void route(pl_routes *r, size_t token, const float *scores, bool renormalise)
{
    pl_kernels k;
    pl_kernels_init(&k, PL_CPU_C);
    memcpy(r->scores + token * r->n, scores, r->n * sizeof *scores);
    pl_route_token(&k, r, token, renormalise);
}

static void the_largest_are_chosen_in_order_of_number(void **state)
{
    (void)state;
    pl_routes r = open_routes(1, 5, 2);
    const float scores[] = {0, 2, -1, 3, 1};
    double sum = 0, p1, p3;
    for (int i = 0; i < 5; i++) sum += exp((double)scores[i]);
    p1 = exp(2) / sum;
    p3 = exp(3) / sum;
    route(&r, 0, scores, false);
    assert_true(r.expert[0] == 1 && r.expert[1] == 3);
    assert_true(fabs((double)r.weight[0] - p1) < 1e-6 && fabs((double)r.weight[1] - p3) < 1e-6);
    route(&r, 0, scores, true);
    assert_true(fabs((double)r.weight[0] - p1 / (p1 + p3)) < 1e-6);
    assert_true(fabs((double)r.weight[0] + (double)r.weight[1] - 1) < 1e-6);
    pl_routes_close(&r);
}

static void ties_go_to_the_lower_number(void **state)
{
    (void)state;
    pl_routes r = open_routes(1, 4, 2);
    route(&r, 0, (const float[]){1, 1, 1, 1}, false);
    assert_true(r.expert[0] == 0 && r.expert[1] == 1 && r.weight[0] == 0.25f);
    route(&r, 0, (const float[]){NAN, 1, 1, NAN}, false); /* still two experts that exist */
    assert_true(r.expert[0] < r.expert[1] && r.expert[1] < 4);
    pl_routes_close(&r);
}

static void tokens_are_grouped_in_order(void **state)
{
    (void)state;
    pl_routes r = open_routes(3, 3, 2);
    route(&r, 0, (const float[]){5, 0, 4}, false); /* 0, 2 */
    route(&r, 1, (const float[]){0, 5, 4}, false); /* 1, 2 */
    route(&r, 2, (const float[]){5, 0, 4}, false); /* 0, 2 */
    pl_routes_group(&r, 3);
    const size_t first[] = {0, 2, 3, 6};
    const uint32_t member[] = {0, 4, 2, 1, 3, 5};
    assert_memory_equal(r.first, first, sizeof first);
    assert_memory_equal(r.member, member, sizeof member);
    pl_routes_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_are_chosen_in_order_of_number),
        cmocka_unit_test(ties_go_to_the_lower_number),
        cmocka_unit_test(tokens_are_grouped_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
