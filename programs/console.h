/* SPDX-License-Identifier: Apache-2.0
 *
 * How the program speaks: exit statuses, one-line errors, checked output, a progress line and
 * Ctrl-C. */
#ifndef CONSOLE_H
#define CONSOLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "pleach/status.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

/* Before anything else: a closed pipe and a size limit become errors of write, a mapped file that
 * is cut off ends the program with a line, and closed standard streams are filled, so that no file
 * opened later takes their place. */
void console_start(void);

/* One line "pleach: ..." on stderr, control characters made harmless. Returns EXIT_FAILED. */
int fail(const char *fmt, ...) PL_PRINTF(1, 2);
/* The same for a wrong command line: EXIT_USAGE. */
int fail_usage(const char *fmt, ...) PL_PRINTF(1, 2);
/* The line of a failed library call: EXIT_FAILED, or EXIT_INTERRUPTED with a quieter line. */
int fail_status(const pleach_error *err);

/* Writes to stdout at once; as finish_output(EXIT_OK). */
int write_output(const char *text, size_t size);
/* Flushes stdout. Returns `status`, or EXIT_FAILED with a line when something was not written. */
int finish_output(int status);
/* Prints a JSON value and releases it; as finish_output(EXIT_OK). NULL: out of memory. */
int print_json(json_t *value);
/* A JSON number, or null for what JSON cannot say. */
json_t *json_number(double x);
/* A JSON string, or null for bytes that are no UTF-8. */
json_t *json_text(const char *text);
/* Prints text with control characters as '?': names from files. Returns the characters printed. */
int print_name(const char *text);

/* A line on stderr that replaces the last one, ten times a second at most; nothing unless stderr is
 * a terminal. */
void progress_line(const char *fmt, ...) PL_PRINTF(1, 2);
void progress_end(void);

/* From here on the first Ctrl-C is only noted. Unless `again`, the second one ends the program. */
void catch_interrupts(bool again);
bool interrupted(void);
void forget_interrupt(void);

/* "1.2 GB", "34 s", "2 h 05 min". */
const char *bytes_text(uint64_t bytes, char text[32]);
const char *time_text(double seconds, char text[32]);

#endif
