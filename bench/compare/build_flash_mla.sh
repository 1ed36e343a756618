#!/usr/bin/env bash
# Builds FlashMLA's dense decode kernels for Hopper and our driver into bench/compare/flash_mla/lib, which git
# ignores; the attention bench for GPUs then times them beside ours. Nothing of FlashMLA or CUTLASS is in this
# repository. Arguments: a FlashMLA checkout or bare repository, and one of CUTLASS; without them, what an earlier
# call unpacked. Three files, one at a time: several minutes and a few GB.
set -euo pipefail
cd "$(dirname "$0")"
flash_mla_commit=9241ae3 cutlass_commit=147f5673d0c1c3dcf66f78d677fd647e4a020219  # the latter is the former's pin
if [ $# -ge 2 ]; then
  mkdir -p flash_mla/cutlass
  git -C "$1" archive "$flash_mla_commit" csrc LICENSE | tar x -C flash_mla --exclude='csrc/sm100*'
  git -C "$2" archive "$cutlass_commit":include | tar x -C flash_mla/cutlass --one-top-level=include
fi
if [ ! -d flash_mla/csrc ] || [ ! -d flash_mla/cutlass/include ]; then
  echo "usage: $0 FLASH_MLA_REPOSITORY CUTLASS_REPOSITORY" >&2
  exit 2
fi
# Its own optimisation flags (setup.py at that commit).
flags=(-O3 -std=c++20 -DNDEBUG -D_USE_MATH_DEFINES -w -U__CUDA_NO_HALF_OPERATORS__ -U__CUDA_NO_HALF_CONVERSIONS__
  -U__CUDA_NO_HALF2_OPERATORS__ -U__CUDA_NO_BFLOAT16_CONVERSIONS__ --expt-relaxed-constexpr --expt-extended-lambda
  --use_fast_math -Xptxas=--register-usage-level=10 -lineinfo -gencode arch=compute_90a,code=sm_90a
  -Iflash_mla/csrc -Iflash_mla/csrc/kerutils/include -Iflash_mla/csrc/sm90 -Iflash_mla/cutlass/include -I..)
mkdir -p flash_mla/obj flash_mla/lib
for source in flash_mla/csrc/sm90/decode/dense/instantiations/bf16.cu flash_mla/csrc/smxx/decode/combine/combine.cu \
  flash_mla/csrc/smxx/decode/get_decoding_sched_meta/get_decoding_sched_meta.cu flash_mla_driver.cu; do
  object=flash_mla/obj/$(basename "$source" .cu).o
  [ "$object" -nt "$source" ] || nvcc "${flags[@]}" -DFLASH_MLA_DISABLE_FP16 -c "$source" -o "$object"
done
rm -f flash_mla/lib/libflash_mla_driver.a
ar rcs flash_mla/lib/libflash_mla_driver.a flash_mla/obj/*.o
ls -l flash_mla/lib
