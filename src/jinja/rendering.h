/* SPDX-License-Identifier: Apache-2.0
 *
 * A rendering under way, as the parts of the interpreter see it. */
#ifndef PL_JINJA_RENDERING_H
#define PL_JINJA_RENDERING_H

#include "value.h"

/* Names of one block; the ones round it follow. A loop's body cannot set names outside it. */
typedef struct scope {
    const struct scope *outer;
    dict names;
} scope;

typedef enum leaving { LEAVING_NOT, LEAVING_BREAK, LEAVING_CONTINUE } leaving;

struct rendering {
    arena memory;
    const json_t *said, *own;
    const time_t *now;
    scope globals, *scope;
    builder *output;
    leaving leaving;
    uint64_t steps;
    uint32_t depth, line;
    pleach_status status; /* the first failure; then everything is undefined and empty */
    pleach_error *err;
};

struct macro {
    const node *node;   /* its parameters are children, its text body */
    const scope *scope; /* where it was defined */
};

/* PLEACH_ERR_ARGUMENT "chat template, line 3: ..."; returns an undefined value. */
value jinja_fail(rendering *r, const char *fmt, ...) PL_PRINTF(2, 3);
/* More than may be taken of something. */
value jinja_fail_limit(rendering *r, const char *what);
/* Memory of the arena; NULL after failing. */
void *jinja_take(rendering *r, size_t bytes);
/* One more step of work; false once there were too many, or after a failure. */
bool jinja_count_step(rendering *r);
bool jinja_failed(const rendering *r);

/* Calls what can be called. */
value jinja_call(rendering *r, const value *callee, const arguments *a);
/* A filter or test by name. */
value jinja_apply_filter(rendering *r, const char *name, const value *v, const arguments *a);
bool jinja_apply_test(rendering *r, const char *name, const value *v, const arguments *a);
bool jinja_has_test(const char *name);
/* A method of a str, dict or list; a->items are its arguments. */
bool jinja_has_method(const value *self, const char *name);
value jinja_call_method(rendering *r, const value *self, const char *name, const arguments *a);
/* range, namespace, ...; undefined for other names. */
value jinja_global_function(const char *name);

/* a OP b of two values. */
value jinja_apply_operator(rendering *r, operator_kind operator, const value * a, const value *b);

/* ---- arguments --------------------------------------------------------------------------------
 *
 * Argument i, or the one called name (NULL: positional only); NULL where there is neither. */
const value *jinja_argument(const arguments *a, size_t i, const char *name);
/* As a text, an integer, a truth; `otherwise` where it is absent or none. Other types fail. */
text jinja_text_argument(rendering *r, const arguments *a, size_t i, const char *name,
                         const char *otherwise);
int64_t jinja_int_argument(rendering *r, const arguments *a, size_t i, const char *name,
                           int64_t otherwise);
bool jinja_bool_argument(const arguments *a, size_t i, const char *name, bool otherwise);

#endif
