/* SPDX-License-Identifier: Apache-2.0 */
#include "tools.h"

#include <string.h>

enum { LONGEST_NAME = 128 };

static bool is_name(const json_t *name)
{
    static const char also[] = "_-.";
    const char *s = json_string_value(name);
    if (!s || !s[0] || strlen(s) > LONGEST_NAME || strlen(s) != json_string_length(name))
        return false;
    for (; *s; s++) {
        bool letter = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z');
        if (!letter && !(*s >= '0' && *s <= '9') && !strchr(also, *s)) return false;
    }
    return true;
}

static pleach_status check_tool(const json_t *tool, size_t i, pleach_error *err)
{
    const json_t *type = json_object_get(tool, "type"), *f = json_object_get(tool, "function");
    const json_t *description = json_object_get(f, "description");
    const json_t *parameters = json_object_get(f, "parameters");
    PL_FAIL_IF(!json_is_object(tool), err, PLEACH_ERR_ARGUMENT, "tools[%zu]: expected an object",
               i);
    PL_FAIL_IF(!json_is_string(type) || strcmp(json_string_value(type), "function"), err,
               PLEACH_ERR_ARGUMENT, "tools[%zu].type: expected \"function\"", i);
    PL_FAIL_IF(!json_is_object(f), err, PLEACH_ERR_ARGUMENT,
               "tools[%zu].function: expected an object", i);
    PL_FAIL_IF(!is_name(json_object_get(f, "name")), err, PLEACH_ERR_ARGUMENT,
               "tools[%zu].function.name: expected 1 to %d letters, digits, _, - or .", i,
               LONGEST_NAME);
    PL_FAIL_IF(description && !json_is_string(description) && !json_is_null(description), err,
               PLEACH_ERR_ARGUMENT, "tools[%zu].function.description: expected a string", i);
    PL_FAIL_IF(parameters && !json_is_object(parameters) && !json_is_null(parameters), err,
               PLEACH_ERR_ARGUMENT, "tools[%zu].function.parameters: expected an object", i);
    return PLEACH_OK;
}

pleach_status pl_tools_check(const json_t *tools, pleach_error *err)
{
    PL_FAIL_IF(!json_is_array(tools), err, PLEACH_ERR_ARGUMENT, "tools: expected a list");
    for (size_t i = 0; i < json_array_size(tools); i++)
        PL_TRY(check_tool(json_array_get(tools, i), i, err));
    return PLEACH_OK;
}

const json_t *pl_tools_find(const json_t *tools, const char *name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        const char *its = json_string_value(json_object_get(f, "name"));
        if (its && !strcmp(its, name)) return f;
    }
    return NULL;
}

bool pl_tools_allow(const json_t *tools, const char *name)
{
    return tools ? pl_tools_find(tools, name) != NULL : name[0] != 0;
}

bool pl_tools_is_string(const json_t *schema)
{
    const char *type = json_string_value(json_object_get(schema, "type"));
    return type && !strcmp(type, "string");
}
