#!/usr/bin/env bash
# Unpacks the few Debian libraries that the cuda preset needs into tools/gpu/sysroot, for a GPU machine without
# a package registry: run it where there is one, carry the folder, and configure with
#   cmake --preset cuda -DCMAKE_PREFIX_PATH=$PWD/tools/gpu/sysroot/usr
set -euo pipefail
cd "$(dirname "$0")"
packages="libfmt-dev libfmt9 libgtest-dev libgmock-dev nlohmann-json3-dev libcli11-dev"
[ "$(cat sysroot/packages 2> /dev/null)" = "$packages" ] && exit 0
rm -rf sysroot packages
mkdir -p sysroot packages
(cd packages && apt-get download $packages)
for package in packages/*.deb; do dpkg -x "$package" sysroot; done
rm -r packages sysroot/usr/share/doc
echo "$packages" > sysroot/packages
