#!/usr/bin/env bash
# On a GPU machine: builds the cuda preset and runs the attention tests. Arguments go to the test binary.
set -euo pipefail
cd "$(dirname "$0")/../.."
start=$SECONDS
cmake --preset cuda -DCMAKE_PREFIX_PATH="$PWD/tools/gpu/sysroot/usr" \
  -DCMAKE_CUDA_ARCHITECTURES=90a-real -DLATENT_WERROR=OFF > /dev/null  # its g++ need not be ours
cmake --build build/cuda --target attention_tests 2>&1 | grep -E 'error|FAILED' || true
echo "built in $((SECONDS - start)) s"
export LD_LIBRARY_PATH="$PWD/tools/gpu/sysroot/usr/lib/x86_64-linux-gnu:${LD_LIBRARY_PATH:-}"
build/cuda/tests/attention_tests "$@"
