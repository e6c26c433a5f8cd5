#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the scripts of jobs install is what CMake looks for: by comparing the lists, and, as root where mmdebstrap reaches a
# mirror, in a bare Debian, where the steps of jobs/quickstart and then those of jobs/test install packages and configure.
#   dependencies.sh SOURCE_DIR
set -eu
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; [ ! -f "$work/log" ] || tail -30 "$work/log"; exit 1; }
# shellcheck source=jobs/dependencies.sh
. "$source/jobs/dependencies.sh"

# sought FILE…: the packages that the CMake files look for, one a line.
sought() {
  sed -nE 's/^ *(find_package|pkg_check_modules|pkg_search_module)\((.*)/\2/p' "$@" | while read -r name words; do
    case $name in
      Boost) grep -oE 'COMPONENTS [a-z_ ]+' <<< "$words" | cut -d' ' -f2- | tr ' ' '\n' ;;
      *) echo "$name" ;;
    esac
  done
}
# dependency_of NAME: what jobs/dependencies.sh calls it; nothing for what comes with another one.
dependency_of() {
  case $1 in
    MPI) echo mpi ;;
    CBLAS) echo blas ;;
    dnnl) echo onednn ;;
    nlohmann_json) echo json ;;
    PkgConfig) echo pkg-config ;;
    GTest) echo gtest ;;
    program_options) echo options ;;
    YAML | HDF5 | ICU | HWLOC | ZLIB | ZSTD | context) tr '[:upper:]' '[:lower:]' <<< "$1" ;;
    ONIG) echo oniguruma ;;
    OpenMP | Threads) echo compiler ;;
    Git) echo git ;;
    CUDAToolkit) ;;  # used where it is, never installed
    *) fail "CMake looks for $1, and no dependency of jobs/dependencies.sh is known for it" ;;
  esac
}
# compare "CMAKE FILES" DEPENDENCY…: every package sought is among the dependencies.
compare() {
  local files=$1 name wanted
  shift
  # shellcheck disable=SC2086  # a list of files without spaces in their names
  names=$(cd "$source" && sought $files)
  [ "$(wc -w <<< "$names")" -gt 1 ] || fail "found no packages in $files"
  for name in $names; do
    wanted=$(dependency_of "$name") || { echo "$wanted"; exit 1; }
    [ -z "$wanted" ] || [[ " $* " == *" $wanted "* ]] || fail "CMake looks for $name, and the scripts do not install '$wanted'"
    [ -z "$wanted" ] || [ -n "$(package_of "$wanted")" ] || fail "no package for '$wanted'"
  done
}
program=$(cd "$source" && git ls-files '*CMakeLists.txt' '*.cmake' 2> /dev/null | grep -v '^tests/' || true)
tests=$(cd "$source" && git ls-files 'tests/*CMakeLists.txt' 2> /dev/null | grep -v '^tests/external/' || true)
[ -n "$program" ] || { echo "skipped: not a checkout"; exit 77; }
compare "$program" "${build_dependencies[@]}"
compare "$program $tests" "${test_dependencies[@]}"
for name in "${test_dependencies[@]}"; do present "$name" || fail "'$name' is not found on the machine that built the tests"; done
require_of() { grep -E '^require ' "$source/jobs/$1" | head -n 1; }
# shellcheck disable=SC2016  # the scripts' own words
[ "$(require_of quickstart)" = 'require "${build_dependencies[@]}"' ] || fail "jobs/quickstart: $(require_of quickstart)"
# shellcheck disable=SC2016
[ "$(require_of test)" = 'require "${test_dependencies[@]}"' ] || fail "jobs/test: $(require_of test)"

root=$work/debian
mirror=()
[ ! -f /etc/apt/sources.list.d/debian.sources ] || mirror=(/etc/apt/sources.list.d/debian.sources)
if [ "$(id -u)" != 0 ] || ! command -v mmdebstrap > /dev/null || ! unshare --mount true 2> /dev/null ||
  ! timeout 300 mmdebstrap --quiet --variant=minbase --include=git,ca-certificates,g++ bookworm "$root" "${mirror[@]}" \
    > "$work/log" 2>&1; then
  echo "the lists agree; not tried in a bare Debian, which needs root, mmdebstrap and a mirror"
  exit 0
fi
mkdir "$root/project"
(cd "$source" && git ls-files -z | tar --null -cf - -T -) | tar -xf - -C "$root/project"
cp /etc/resolv.conf "$root/etc/"
cat > "$root/steps" <<'STEPS'
set -eu
cd /project
. jobs/dependencies.sh
configure() { cmake -S . -B "/tmp/$1" -G Ninja -DTESSERA_CUDA=OFF "-DTESSERA_TESTS=$2"; }
eval "$(grep -E '^require ' jobs/quickstart)"
configure quickstart OFF
eval "$(grep -E '^require ' jobs/test | head -n 1)"
configure tests ON
STEPS
# shellcheck disable=SC2016  # expanded by the inner shell
unshare --mount bash -c '
  mount --make-rprivate / && mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" &&
    exec timeout 400 chroot "$1" env -i PATH="$PATH" HOME=/root LANG=C.UTF-8 bash /steps' - "$root" > "$work/log" 2>&1 < /dev/null || fail "in a bare Debian: exit $?"
for build in quickstart tests; do [ -f "$root/tmp/$build/build.ninja" ] || fail "not configured: $build"; done
echo "good: both steps, one after the other, in a bare Debian"
