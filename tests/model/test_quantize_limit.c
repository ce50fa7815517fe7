/* SPDX-License-Identifier: Apache-2.0
 *
 * The whole command, run under a limit of 1.1 x the memory that it promises.
 *
 * The kernel keeps the limit: RLIMIT_DATA, which everybody may set everywhere. It counts private
 * writable memory, as a control group does with files that can be dropped: heap, buffers and
 * stacks, not the mapped files. It counts what is reserved, touched or not. That is much in two
 * places alone: OpenBLAS reserves a buffer for each thread (128 MiB in some versions) of which it
 * touches little, so that much is added; and stacks, which are made small. Where this user may make
 * a control group, the run is in one as well. What was resident, mapped files included, is compared
 * at the end. */
#include "wide_model.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "base/matrix.h"

#define MOST 1.1     /* of the promise */
#define THREADS 2
#define STACK_BYTES ((rlim_t)1 << 20)
#define SECONDS 300  /* OpenBLAS asks for ever for a buffer that it does not get */
#define TMPFS 0x01021994

static const char *self; /* this program */

/* ---- what OpenBLAS reserves ------------------------------------------------------------------ */

static uint64_t data_bytes(void)
{
    unsigned long long size, resident, shared, text, library, data;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%llu %llu %llu %llu %llu %llu", &size, &resident, &shared, &text,
                            &library, &data), 6);
    fclose(f);
    return data * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* The first product of a fresh process takes the buffer. */
static int print_reserve(void)
{
    enum { N = 256 };
    static float a[N * N], c[N * N];
    uint64_t before = data_bytes();
    pl_matmul(NULL, false, false, N, N, N, 1, a, N, a, N, 0, c, N);
    printf("%llu\n", (unsigned long long)(data_bytes() - before));
    return 0;
}

/* ---- a control group ------------------------------------------------------------------------- */

static bool write_in(const char *folder, const char *file, const char *text)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) close(fd);
    return good;
}

/* Version 2, with that much memory and no swap. False where there can be none, or where the files
 * that the run writes would count as its memory. */
static bool make_group(char *path, size_t size, uint64_t bytes)
{
    struct statfs disk;
    char text[24];
    snprintf(path, size, "/sys/fs/cgroup/pleach-test-%d", (int)getpid());
    snprintf(text, sizeof text, "%llu", (unsigned long long)bytes);
    if (statfs(work.path, &disk) || disk.f_type == TMPFS || mkdir(path, 0755)) return false;
    if (write_in(path, "memory.max", text)) {
        write_in(path, "memory.swap.max", "0"); /* not there without swap accounting */
        return true;
    }
    rmdir(path);
    return false;
}

/* ---- runs ------------------------------------------------------------------------------------ */

typedef struct ran {
    int status; /* as wait gives it */
    uint64_t resident;
    char *output;
} ran;

static void become(char *const arguments[], uint64_t limit, const char *group)
{
    int out = open(at("stdout"), O_CREAT | O_TRUNC | O_WRONLY, 0644);
    struct rlimit data = {limit, limit}, stack = {STACK_BYTES, RLIM_INFINITY};
    if (getrlimit(RLIMIT_STACK, &stack) == 0) stack.rlim_cur = PL_MIN(stack.rlim_max, STACK_BYTES);
    setenv("OPENBLAS_NUM_THREADS", "1", 1); /* Pleach has its own threads */
    if (group && !write_in(group, "cgroup.procs", "0")) print_message("not in the control group\n");
    if (out < 0 || dup2(out, 1) < 0) _exit(125);
    if (limit && (setrlimit(RLIMIT_STACK, &stack) || setrlimit(RLIMIT_DATA, &data))) _exit(126);
    alarm(SECONDS);
    execv(arguments[0], arguments);
    _exit(127);
}

/* limit 0: none. */
static ran run(char *const arguments[], uint64_t limit, const char *group)
{
    struct rusage usage;
    ran r;
    size_t size;
    pid_t child = fork();
    if (child == 0) become(arguments, limit, group);
    assert_int_equal(wait4(child, &r.status, 0, &usage), child);
    r.resident = (uint64_t)usage.ru_maxrss * 1024;
    must(pl_read_file(at("stdout"), 1 << 20, &r.output, &size, &err));
    return r;
}

static uint64_t reserve(void)
{
    char *arguments[] = {(char *)(uintptr_t)self, "reserve", NULL};
    ran r = run(arguments, 0, NULL);
    uint64_t bytes = strtoull(r.output, NULL, 10);
    assert_int_equal(r.status, 0);
    assert_true(bytes > 0);
    pl_free(r.output);
    return bytes;
}

enum { MOST_OPTIONS = 12 };
typedef struct command {
    char *arguments[MOST_OPTIONS + 8];
    size_t n;
} command;

static void add(command *c, const char *argument)
{
    c->arguments[c->n++] = (char *)(uintptr_t)argument;
}

static command quantize(const char *const *options, const char *out)
{
    command c = {.n = 0};
    const char *const first[] = {getenv("PLEACH"), "quantize", model.path, out, "-t", "2"};
    for (size_t i = 0; i < PL_COUNT(first); i++) add(&c, first[i]);
    for (; *options; options++) add(&c, *options);
    return c;
}

static uint64_t promised(const char *const *options, const char *out)
{
    command c = quantize(options, out);
    unsigned long long bytes = 0;
    add(&c, "--dry-run");
    add(&c, "--json");
    ran r = run(c.arguments, 0, NULL);
    const char *found = strstr(r.output, "\"peak_memory\": ");
    assert_int_equal(r.status, 0);
    assert_true(found && sscanf(found, "\"peak_memory\": %llu", &bytes) == 1);
    pl_free(r.output);
    return bytes;
}

/* Says its promise first, and keeps it. */
static void check_run(const char *name, const char *const *options, uint64_t reserved)
{
    char path[200], said[4];
    double number;
    const char *out = at(name); /* good for the few calls here */
    uint64_t promise = promised(options, out), most = (uint64_t)(MOST * (double)promise);
    command c = quantize(options, out);
#ifdef __SANITIZE_ADDRESS__ /* its shadow is writable memory, and memory it has freed is kept */
    ran r = run(c.arguments, 0, NULL);
    (void)reserved;
    (void)path;
#else
    bool group = make_group(path, sizeof path, most);
    ran r = run(c.arguments, most + THREADS * reserved, group ? path : NULL);
    if (group) rmdir(path);
    print_message("%s: %.1f MB resident, %.1f MB promised%s\n", name, (double)r.resident * 1e-6,
                  (double)promise * 1e-6, group ? "; in a control group" : "");
    assert_true(r.resident <= most);
#endif
    assert_int_equal(r.status, 0);
    assert_int_equal(sscanf(r.output, "memory at most %lf %3[kMG]B", &number, said), 2);
    number *= *said == 'k' ? 1e3 : *said == 'M' ? 1e6 : 1e9;
    if (fabs(number - (double)promise) > 0.01 * (double)promise)
        fail_msg("%s: %g promised by the run, %llu by the plan", name, number,
                 (unsigned long long)promise);
    pl_free(r.output);
}

static void promises_are_kept(void **state)
{
    char text[400];
    const struct {
        const char *name, *options[MOST_OPTIONS];
    } runs[] = {
        {"none", {"--calib", "none"}},
        {"plain", {"--calib", text, "--plain-hessian"}},
        {"weighted", {"--calib", text}},
        {"two-sided", {"--calib", text, "--two-sided", "--bits", "2"}},
        {"axis-1", {"--calib", text, "--plain-hessian", "--axis", "1"}},
        {"budget", {"--calib", "none", "--budget", "3.9"}},
        {"self-refined", {"--calib", "self", "--calib-tokens", "1024", "--plain-hessian",
                          "--refine", "1"}},
        {"scored", {"--calib", "none", "--report-text", text}},
    };
    (void)state;
    snprintf(text, sizeof text, "%s", at("calib.txt"));
    uint64_t reserved = reserve();
    print_message("%.1f MB reserved for each thread by OpenBLAS\n", (double)reserved * 1e-6);
    for (size_t i = 0; i < PL_COUNT(runs); i++) check_run(runs[i].name, runs[i].options, reserved);
}

/* The limit is one: with less than the buffers of a module the run fails, in one line. */
static void limits_hold(void **state)
{
    const char *const options[] = {"--calib", "none", NULL};
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip();
#endif
    command c = quantize(options, at("too-little"));
    ran r = run(c.arguments, (uint64_t)8 << 20, NULL);
    assert_true(WIFEXITED(r.status));
    assert_int_equal(WEXITSTATUS(r.status), 1);
    assert_false(pl_exists(at("too-little")));
    pl_free(r.output);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(promises_are_kept),
        cmocka_unit_test(limits_hold),
    };
    self = argv[0];
    if (argc > 1) return print_reserve();
    if (!getenv("PLEACH")) return 77;
    return cmocka_run_group_tests(tests, wide_setup, wide_teardown);
}
