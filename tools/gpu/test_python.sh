#!/usr/bin/env bash
# On a GPU machine with torch: builds liblatent_attention, and runs the tests of the C interface, of the Python package
# and the examples. LATENT_CTEST_ONLY narrows them, a regular expression of ctest names.
set -euo pipefail
cd "$(dirname "$0")/../.."
start=$SECONDS
cmake --preset cuda -DCMAKE_PREFIX_PATH="$PWD/tools/gpu/sysroot/usr" \
  -DCMAKE_CUDA_ARCHITECTURES=90a-real -DLATENT_WERROR=OFF `# its g++ need not be ours` \
  -DPython3_EXECUTABLE="$(command -v python3)" -DLATENT_TORCH_PYTHON="$(command -v python3)" > /dev/null
cmake --build build/cuda --target latent_attention_shared capi_tests example_c_decode 2>&1 |
  grep -E 'error:|FAILED' || true
echo "built in $((SECONDS - start)) s"
export LD_LIBRARY_PATH="$PWD/tools/gpu/sysroot/usr/lib/x86_64-linux-gnu:${LD_LIBRARY_PATH:-}"
python3 tools/run_tests.py build/cuda --only "${LATENT_CTEST_ONLY:-^(capi|python_|example_)}" --jobs 4
