# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts of this folder and by .ci/run: sourced, never run.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repository"

say() { printf '%s\n' "$*" >&2; }

# die WHAT [REMEDY]
die() {
  say "error: $1"
  [ $# -lt 2 ] || say "  to mend it: $2"
  exit 1
}

# Prints the comment block at the top of the calling script.
usage() { sed -n '3,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0"; }

num_cores() { nproc; }

# Lets ninja's progress through at every twentieth, and everything else (warnings, errors) whole.
thin_progress() {
  awk 'match($0, /^\[[0-9]+\/[0-9]+\]/) {
         split(substr($0, 2, RLENGTH - 2), n, "/")
         step = int(20 * n[1] / n[2])
         if (step != last || n[1] == n[2]) { print; fflush() }
         last = step
         next
       }
       { print; fflush() }'
}

# build_preset PRESET [TARGET…]: configures and builds; output to stderr.
build_preset() {
  local preset=$1 log targets=() target
  shift
  for target in "$@"; do targets+=(--target "$target"); done
  mkdir -p "build/$preset"
  log=build/$preset/configure.log
  say "configuring $preset"
  if ! cmake --preset "$preset" >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    say "error: configuring the preset '$preset' failed (the whole log: $log)"
    say "  to mend it: run scripts/setup, or remove build/$preset if its compiler has changed"
    return 1
  fi
  say "building $preset with $(num_cores) jobs"
  if [ -t 2 ]; then
    cmake --build "build/$preset" -j "$(num_cores)" "${targets[@]}" >&2
  else
    cmake --build "build/$preset" -j "$(num_cores)" "${targets[@]}" 2>&1 | thin_progress >&2
  fi || {
    say "error: building the preset '$preset' failed; the first error is above"
    return 1
  }
}
