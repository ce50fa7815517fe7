#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds for this machine's NVIDIA GPU, checks every kernel and the engine on it, measures both, and
# ends with a summary; under ten minutes.
#
#   tools/check_cuda.sh [BUILD]        BUILD: a folder to build in, build-cuda without it
#
# PLEACH_CUDA_LAYERS: layers of the 27B-shaped model that is measured, 64 without it.
set -uo pipefail
cd "$(dirname "$0")/.."
build=${1:-build-cuda}
log=$build/check_cuda.log
model=$build/random_model
PATH=$PATH:/usr/local/cuda/bin
failed=0

step() { # step NAME COMMAND...: runs it, keeps its output, says how it went
    local name=$1 start=$SECONDS status
    shift
    echo "== $name: $*" >>"$log"
    "$@" >"$build/step" 2>&1
    status=$?
    cat "$build/step" >>"$log"
    case $status in
    0) printf '%-10s passed   %4d s\n' "$name" $((SECONDS - start)) ;;
    77) printf '%-10s skipped  %4d s\n' "$name" $((SECONDS - start)) ;;
    *)
        printf '%-10s FAILED   %4d s (%s)\n' "$name" $((SECONDS - start)) "$log"
        grep -i 'failed\|error' "$build/step" | head -n 20
        failed=1
        ;;
    esac
}

build_all() {
    cmake -G Ninja -S . -B "$build" -DPLEACH_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES="$architecture" &&
        ninja -C "$build" pleach_program check-kernels test_cuda
}

capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)
if [ -z "$capability" ]; then
    echo "skipped: no NVIDIA GPU"
    exit 77
fi
architecture=$capability-real
[ "$capability" = 90 ] && architecture=90a-real
mkdir -p "$build"
: >"$log"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | head -n 1
step build build_all
[ "$failed" -eq 0 ] || exit 1
step kernels "$build/check-kernels" --device cuda --bench
step engine "$build/test_cuda"
step products "$build/pleach" bench kernels --device cuda
cat "$build/step"
step model python3 bench/random_model.py "$model" --layers "${PLEACH_CUDA_LAYERS:-64}" \
    --heads 32 --head-dim 128
for kv in bf16 k8v3; do
    step "$kv" "$build/pleach" bench "$model" --device cuda --sequences 32 --kv $kv --ctx 4096 -n 64
    cat "$build/step"
done
step invariant "$build/pleach" bench "$model" --device cuda --batch-invariant --sequences 32 \
    --kv k8v3 --ctx 4096 -n 64
cat "$build/step"
rm -rf "$model"
[ "$failed" -eq 0 ] && echo passed
exit $failed
