/* SPDX-License-Identifier: Apache-2.0
 *
 * Error lines and status names. */
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

pleach_status pl_fail(pleach_error *err, pleach_status code, const char *fmt, ...)
{
    if (!err) return code;
    va_list args;
    va_start(args, fmt);
    err->code = code;
    vsnprintf(err->message, sizeof err->message, fmt, args);
    va_end(args);
    for (char *c = err->message; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    return code;
}

pleach_status pl_fail_memory(pleach_error *err, const char *what, unsigned long long bytes)
{
    return pl_fail(err, PLEACH_ERR_MEMORY, "out of memory: %s needs %llu bytes", what, bytes);
}

pleach_status pl_fail_errno(pleach_error *err, const char *doing, const char *path)
{
    int e = errno;
    pleach_status code = e == ENOSPC || e == EDQUOT ? PLEACH_ERR_NO_SPACE
                         : e == ENOENT              ? PLEACH_ERR_MISSING
                         : e == EEXIST              ? PLEACH_ERR_EXISTS
                         : e == ENOMEM              ? PLEACH_ERR_MEMORY
                                                    : PLEACH_ERR_IO;
    return pl_fail(err, code, "cannot %s %s: %s", doing, path, strerror(e));
}

const char *pleach_status_text(pleach_status status)
{
    switch (status) {
    case PLEACH_OK: return "success";
    case PLEACH_ERR_ARGUMENT: return "bad argument";
    case PLEACH_ERR_SHAPE: return "impossible shape";
    case PLEACH_ERR_UNSUPPORTED: return "not supported";
    case PLEACH_ERR_LIMIT: return "limit reached";
    case PLEACH_ERR_BUSY: return "too many wait";
    case PLEACH_ERR_MEMORY: return "out of memory";
    case PLEACH_ERR_IO: return "input or output failed";
    case PLEACH_ERR_NO_SPACE: return "no space left on the disk";
    case PLEACH_ERR_EXISTS: return "output exists already";
    case PLEACH_ERR_DEVICE: return "a device failed";
    case PLEACH_ERR_FORMAT: return "malformed file";
    case PLEACH_ERR_MISSING: return "something needed is missing";
    case PLEACH_ERR_DATA: return "bad value in the data";
    case PLEACH_ERR_MISMATCH: return "things that must agree do not";
    case PLEACH_ERR_CANCELLED: return "cancelled";
    }
    return "unknown status";
}
