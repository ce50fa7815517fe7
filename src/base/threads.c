/* SPDX-License-Identifier: Apache-2.0
 *
 * Thread count from affinity and cgroup quota (v2: cpu.max, v1: cpu.cfs_quota_us). */
#define _GNU_SOURCE
#include "threads.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

/* Whole cores that a "quota period" pair allows, or 0 when it sets no limit. */
static int cores_of_quota(long long quota, long long period)
{
    if (quota <= 0 || period <= 0) return 0;
    return (int)((quota + period - 1) / period);
}

static int read_numbers(const char *path, const char *format, long long *a, long long *b)
{
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    int n = fscanf(f, format, a, b);
    fclose(f);
    return n;
}

/* The tightest cpu.max from this process's cgroup up to the root. */
static int quota_v2(void)
{
    char line[1024], path[1200], *group = NULL;
    FILE *f = fopen("/proc/self/cgroup", "r");
    if (!f) return 0;
    while (!group && fgets(line, sizeof line, f))
        if (strncmp(line, "0::", 3) == 0) group = line + 3;
    fclose(f);
    if (!group) return 0;
    group[strcspn(group, "\n")] = 0;
    int best = 0;
    for (;;) {
        long long quota = 0, period = 0;
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", strcmp(group, "/") ? group : "");
        if (read_numbers(path, "%lld %lld", &quota, &period) == 2) {
            int cores = cores_of_quota(quota, period);
            if (cores && (!best || cores < best)) best = cores;
        }
        char *slash = strrchr(group, '/');
        if (!slash || group[0] == 0) return best;
        *slash = 0;
    }
}

static int quota_v1(void)
{
    long long quota = 0, period = 0, unused = 0;
    read_numbers("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "%lld%lld", &quota, &unused);
    read_numbers("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "%lld%lld", &period, &unused);
    return cores_of_quota(quota, period);
}

int pl_default_threads(void)
{
    cpu_set_t set;
    int cores = 1;
    if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
    int quota = quota_v2();
    if (!quota) quota = quota_v1();
    if (quota && quota < cores) cores = quota;
    return cores < 1 ? 1 : cores > PL_MAX_THREADS ? PL_MAX_THREADS : cores;
}
