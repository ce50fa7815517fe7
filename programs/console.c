/* SPDX-License-Identifier: Apache-2.0
 *
 * Output, errors and signals of the program. */
#include "console.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

static volatile sig_atomic_t interrupt_seen, progress_shown;

/* A page of a mapped file that is no longer there: nothing can go on from here, on any thread. */
static void lose_file(int signal_number, siginfo_t *info, void *context)
{
    static const char line[] =
        "\r\033[Kpleach: a file was cut off, or its disk failed, while it was read\n";
    static atomic_flag reported = ATOMIC_FLAG_INIT;
    (void)context;
    if (info->si_code != BUS_ADRERR) {
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    } else if (!atomic_flag_test_and_set(&reported)) {
        size_t skip = progress_shown ? 0 : 4; /* a progress line is cleared first */
        ssize_t written = write(STDERR_FILENO, line + skip, sizeof line - 1 - skip);
        (void)written;
        _exit(EXIT_FAILED);
    }
}

void console_start(void)
{
    struct sigaction lost = {.sa_sigaction = lose_file, .sa_flags = SA_SIGINFO};
    sigemptyset(&lost.sa_mask);
    sigaction(SIGBUS, &lost, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    /* A closed stream gets /dev/null the wrong way round: using it is an error, as it should be. */
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0)
            return;
}

/* ---- errors -------------------------------------------------------------------------------- */

static void error_line(const char *fmt, va_list args) PL_PRINTF(1, 0);

static void error_line(const char *fmt, va_list args)
{
    char line[1024];
    vsnprintf(line, sizeof line, fmt, args);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    progress_end();
    fflush(stdout);
    fprintf(stderr, "pleach: %s\n", line);
}

int fail(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    error_line(fmt, args);
    va_end(args);
    return EXIT_FAILED;
}

int fail_usage(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    error_line(fmt, args);
    va_end(args);
    return EXIT_USAGE;
}

int fail_status(const pleach_error *err)
{
    fail("%s", err->message);
    return err->code == PLEACH_ERR_CANCELLED ? EXIT_INTERRUPTED : EXIT_FAILED;
}

/* ---- output -------------------------------------------------------------------------------- */

static bool write_reported; /* one line is enough */

int write_output(const char *text, size_t size)
{
    fwrite(text, 1, size, stdout);
    return finish_output(EXIT_OK);
}

int finish_output(int status)
{
    if (write_reported) return EXIT_FAILED;
    bool failed = ferror(stdout);
    errno = 0;
    if (fflush(stdout) == 0 && !failed) return status;
    write_reported = true;
    return fail("cannot write to standard output: %s",
                errno ? strerror(errno) : "an earlier write failed");
}

int print_json(json_t *value)
{
    if (!value) return fail("out of memory: the JSON output");
    /* Failures show in stdout's error flag. */
    (void)json_dumpf(value, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9) | JSON_ENCODE_ANY);
    putchar('\n');
    json_decref(value);
    return finish_output(EXIT_OK);
}

json_t *json_number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

json_t *json_text(const char *text)
{
    json_t *string = text ? json_string(text) : NULL;
    return string ? string : json_null();
}

int print_name(const char *text)
{
    int n = 0;
    for (; *text; text++, n++) putchar((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text);
    return n;
}

void progress_line(const char *fmt, ...)
{
    static double last;
    double now = pl_seconds();
    if (!isatty(STDERR_FILENO) || (progress_shown && now - last < 0.1)) return;
    last = now;
    va_list args;
    va_start(args, fmt);
    fputs("\r\033[K", stderr);
    vfprintf(stderr, fmt, args);
    fflush(stderr);
    va_end(args);
    progress_shown = true;
}

void progress_end(void)
{
    if (progress_shown) fputs("\r\033[K", stderr);
    progress_shown = false;
}

/* ---- Ctrl-C -------------------------------------------------------------------------------- */

static void note_interrupt(int signal_number)
{
    (void)signal_number;
    interrupt_seen = 1;
}

void catch_interrupts(bool again)
{
    /* No SA_RESTART: a read that waits for the user returns. */
    struct sigaction action = {.sa_handler = note_interrupt};
    action.sa_flags = again ? 0 : (int)SA_RESETHAND;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    if (!again) sigaction(SIGTERM, &action, NULL);
}

bool interrupted(void)
{
    return interrupt_seen;
}
void forget_interrupt(void)
{
    interrupt_seen = 0;
}

/* ---- figures ------------------------------------------------------------------------------- */

const char *bytes_text(uint64_t bytes, char text[32])
{
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
    double n = (double)bytes;
    size_t unit = 0;
    for (; n >= 1000 && unit + 1 < PL_COUNT(units); unit++) n /= 1000;
    snprintf(text, 32, unit == 0 ? "%.0f %s" : n < 10 ? "%.2f %s" : "%.1f %s", n, units[unit]);
    return text;
}

const char *time_text(double seconds, char text[32])
{
    if (seconds < 10)
        snprintf(text, 32, "%.1f s", seconds);
    else if (seconds < 100)
        snprintf(text, 32, "%.0f s", seconds);
    else if (seconds < 6000)
        snprintf(text, 32, "%.0f min %02.0f s", floor(seconds / 60), floor(fmod(seconds, 60)));
    else
        snprintf(text, 32, "%.0f h %02.0f min", floor(seconds / 3600),
                 floor(fmod(seconds / 60, 60)));
    return text;
}
