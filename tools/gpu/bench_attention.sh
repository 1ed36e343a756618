#!/usr/bin/env bash
# On a GPU machine: builds the attention bench and runs it. Arguments go to `bench attention`; without any, the
# judged cases under burst and warm. JSON goes to $OUT/attention_bench.json if OUT is set; a short table comes
# last. FlashMLA is timed in turns with ours if bench/compare/flash_mla/lib was carried along.
set -euo pipefail
cd "$(dirname "$0")/../.."
start=$SECONDS
cmake --preset cuda -DCMAKE_PREFIX_PATH="$PWD/tools/gpu/sysroot/usr" \
  -DCMAKE_CUDA_ARCHITECTURES=90a-real -DLATENT_WERROR=OFF > /dev/null  # its g++ need not be ours
cmake --build build/cuda --target latent_bench_attention_gpu 2>&1 | grep -E 'error|FAILED|undefined' || true
echo "built in $((SECONDS - start)) s"
export LD_LIBRARY_PATH="$PWD/tools/gpu/sysroot/usr/lib/x86_64-linux-gnu:${LD_LIBRARY_PATH:-}"
bench=build/cuda/bench/attention/latent_bench_attention_gpu
json=${OUT:-build/cuda}/attention_bench.json
$bench attention --list
[ $# -gt 0 ] || set -- --grid --protocol burst,warm
$bench attention "$@" --json > "$json"
python3 tools/gpu/print_bench.py "$json"
