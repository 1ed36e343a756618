#!/usr/bin/env bash
# Unpacks the few Debian libraries that the cuda preset needs into tools/gpu/sysroot, for a GPU machine without
# a package registry: run it where there is one, carry the folder, and configure with
#   cmake --preset cuda -DCMAKE_PREFIX_PATH=$PWD/tools/gpu/sysroot/usr
set -euo pipefail
cd "$(dirname "$0")"
[ -d sysroot/usr/include/fmt ] && exit 0
mkdir -p sysroot packages
(cd packages && apt-get download libfmt-dev libfmt9 libgtest-dev libgmock-dev)
for package in packages/*.deb; do dpkg -x "$package" sysroot; done
rm -r packages
