/* SPDX-License-Identifier: Apache-2.0
 *
 * Every file of golden-bad that models.tsv lists is refused, in the words that stand there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/memory.h"
#include "format/checkpoint.h"
#include "format/safetensors.h"

#define BAD PLEACH_TEST_DATA "/golden-bad/"

/* All that loading a model does up to the first product: open, config, every weight. */
static pleach_status load(const char *path, pleach_error *err)
{
    size_t n = strlen(path);
    if (n > 12 && strcmp(path + n - 12, ".safetensors") == 0) {
        pl_safetensors *s;
        pleach_status status = pl_safetensors_open(path, &s, err);
        pl_safetensors_close(s);
        return status;
    }
    pleach_checkpoint *c;
    const pl_config *config;
    pleach_status status = pl_checkpoint_open(path, &c, err);
    if (status == PLEACH_OK) status = pl_checkpoint_config(c, &config, err);
    for (size_t i = 0; status == PLEACH_OK && i < pl_config_module_count(config); i++) {
        pl_module m;
        pl_weight w;
        pl_config_module(config, i, &m);
        status = pl_checkpoint_weight(c, m.name, m.out, m.in, &w, err);
    }
    pleach_checkpoint_close(c);
    return status;
}

static void bad_models_are_refused(void **state)
{
    (void)state;
    char *list;
    pleach_error err;
    int n = 0;
    if (pl_read_file(BAD "models.tsv", 1 << 20, &list, NULL, &err) != PLEACH_OK)
        fail_msg("%s", err.message);
    for (char *line = strtok(list, "\n"); line; line = strtok(NULL, "\n"), n++) {
        char path[600], *message = strchr(line, '\t');
        assert_non_null(message);
        *message++ = 0;
        snprintf(path, sizeof path, BAD "%s", line);
        err = (pleach_error){0};
        pleach_status status = load(path, &err);
        if (status == PLEACH_OK) fail_msg("%s is accepted", line);
        if (!strstr(err.message, message))
            fail_msg("%s: '%s' does not say '%s'", line, err.message, message);
        if (!strstr(err.message, BAD)) fail_msg("'%s' names no file", err.message);
        assert_int_equal(err.code, status);
    }
    assert_true(n > 50);
    pl_free(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bad_models_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
