/* SPDX-License-Identifier: Apache-2.0
 *
 * A checkpoint of any coding written out as a plain bf16 Hugging Face folder. */
#include "base/file.h"
#include "job.h"
#include "model_folder.h"
#include "outputs.h"
#include "plan.h"
#include "pleach/pleach.h"

static pl_dtype plain_type(const pl_tensor *t)
{
    return pl_dtype_get(t->type)->numeric ? PL_BF16 : t->type;
}

static pleach_status list_tensors(const pl_plan *plan, pl_outputs *o, pleach_error *err)
{
    for (size_t i = 0; i < plan->n_items; i++)
        PL_TRY(pl_outputs_add_module(o, plan->items[i].module.name, &plan->items[i].source, PL_BF16,
                                     err));
    for (size_t i = 0; i < plan->n_carried; i++)
        PL_TRY(pl_outputs_add_tensor(o, plan->carried[i], plain_type(plan->carried[i]), err));
    return PLEACH_OK;
}

static pleach_status check_disk(const pl_outputs *o, const pl_output_path *path, pleach_error *err)
{
    uint64_t need = (uint64_t)1 << 20, there = pl_disk_free(path->parent);
    for (size_t i = 0; i < o->n; i++) need += o->items[i].tensor.n_bytes;
    PL_FAIL_IF(there < need, err, PLEACH_ERR_NO_SPACE,
               "%s: no space: %llu bytes are needed, %llu are free", path->parent,
               (unsigned long long)need, (unsigned long long)there);
    return PLEACH_OK;
}

static pleach_status write_weights(const pl_plan *plan, const pl_output_path *path,
                                   pleach_error *err)
{
    pl_outputs o = {0};
    pleach_status status = list_tensors(plan, &o, err);
    if (status == PLEACH_OK) status = check_disk(&o, path, err);
    if (status == PLEACH_OK) status = pl_outputs_write(&o, path->staging, PL_SHARD_BYTES, err);
    pl_outputs_free(&o);
    return status;
}

static pleach_status write_config(const pleach_checkpoint *c, const char *dir, pleach_error *err)
{
    json_t *config;
    PL_TRY(pl_source_config(c, &config, err));
    const char *key = json_object_get(config, "dtype") ? "dtype" : "torch_dtype";
    json_object_set_new(config, key, json_string("bfloat16"));
    pleach_status status = pl_write_json(dir, "config.json", config, err);
    json_decref(config);
    return status;
}

static pleach_status write_folder(const pl_plan *plan, const pl_output_path *path,
                                  pleach_error *err)
{
    PL_TRY(pl_output_stage(path, err));
    PL_TRY(write_weights(plan, path, err));
    PL_TRY(pl_write_side_files(plan->source, path->staging, err));
    PL_TRY(write_config(plan->source, path->staging, err));
    return pl_output_publish(path, err);
}

/* The work is not resumed; the job keeps two runs, or a run and a quantiser, apart. */
static pleach_status run_job(const pl_plan *plan, const pl_output_path *path, pleach_error *err)
{
    pl_job job;
    json_t *binding = json_pack("{s:s, s:s}", "work", "dequantize", "version", PLEACH_VERSION);
    if (!binding) return pl_fail_memory(err, "the job file", 0);
    pleach_status status = pl_job_open(&job, path, binding, false, err);
    json_decref(binding);
    PL_TRY(status);
    status = write_folder(plan, path, err);
    if (status == PLEACH_OK) status = pl_job_remove(&job, err);
    else pl_job_remove(&job, NULL);
    pl_job_close(&job);
    return status;
}

pleach_status pleach_checkpoint_dequantize(const pleach_checkpoint *c, const char *out, int force,
                                           pleach_error *err)
{
    static const char *const everything[] = {"*"};
    pleach_quantize_settings settings;
    pl_plan plan;
    pl_output_path path = {0};
    pleach_quantize_settings_defaults(&settings);
    settings.keep = everything;
    settings.n_keep = 1;
    PL_TRY(pl_plan_open(&plan, c, &settings, err));
    pleach_status status = pl_check_side_files(c, err);
    if (status == PLEACH_OK)
        status = pl_output_path_open(&path, pl_checkpoint_path(c), out, force != 0, err);
    if (status == PLEACH_OK) status = run_job(&plan, &path, err);
    pl_output_path_close(&path);
    pl_plan_close(&plan);
    return status;
}
