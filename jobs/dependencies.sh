# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the scripts of jobs: what they need, and Debian's package names for it.

# require NAME ...: installs what is missing, by apt as root; otherwise prints the command that does, and exits with 2.
require() {
  local missing=() name
  for name in "$@"; do
    present "$name" || mapfile -t -O ${#missing[@]} missing < <(package_of "$name" | tr ' ' '\n')
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  local line="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "error: missing: ${missing[*]}. As root, run:" >&2
    echo "  $line" >&2
    exit 2
  fi
  echo "installing ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "${missing[@]}"; } \
      >"$log" 2>&1; then
    cat "$log" >&2
    echo "error: the packages could not be installed; the command was: $line" >&2
    exit 1
  fi
  rm -f "$log"
}

present() {
  case $1 in
    compiler) command -v g++ >/dev/null ;;
    git | cmake | ninja | file | clang-format | clang-tidy | shellcheck | doxygen) command -v "$1" >/dev/null ;;
    mpi) command -v mpirun >/dev/null && command -v mpicc >/dev/null ;;
    pkg-config) command -v pkg-config >/dev/null ;;
    shlibdeps) command -v dpkg-shlibdeps >/dev/null ;;
    blas) pkg-config --exists openblas 2>/dev/null ;;
    onednn) header dnnl.hpp ;;
    yaml) pkg-config --exists yaml-0.1 2>/dev/null ;;
    hdf5) pkg-config --exists hdf5-openmpi 2>/dev/null ;;
    zlib) pkg-config --exists zlib 2>/dev/null ;;
    zstd) pkg-config --exists libzstd 2>/dev/null ;;
    icu) pkg-config --exists icu-uc 2>/dev/null ;;
    hwloc) pkg-config --exists 'hwloc >= 2.0' 2>/dev/null ;;
    options) header boost/program_options.hpp ;;
    context) header boost/context/fiber.hpp ;;
    json) header nlohmann/json.hpp ;;
    iproute2) command -v ip >/dev/null && command -v tc >/dev/null ;;
    gtest) header gtest/gtest.h && header gmock/gmock.h ;;
    sphinx) "$(sed -n '1s/^#!//p' "$(command -v sphinx-build)")" -c 'import myst_parser, furo' 2>/dev/null ;;
    *) echo "error: jobs/dependencies.sh: unknown dependency '$1'" >&2; exit 1 ;;
  esac
}

package_of() {
  case $1 in
    compiler) echo g++ ;;
    ninja) echo ninja-build ;;
    shlibdeps) echo dpkg-dev ;;
    mpi) echo openmpi-bin libopenmpi-dev ;;
    blas) echo libopenblas-pthread-dev ;;
    onednn) echo libdnnl-dev ocl-icd-opencl-dev ;;  # its CMake package wants OpenCL
    yaml) echo libyaml-dev ;;
    hdf5) echo libhdf5-openmpi-dev ;;
    zlib) echo zlib1g-dev ;;
    zstd) echo libzstd-dev ;;
    icu) echo libicu-dev ;;
    hwloc) echo libhwloc-dev ;;
    options) echo libboost-program-options-dev ;;
    context) echo libboost-context-dev ;;
    json) echo nlohmann-json3-dev ;;
    gtest) echo libgtest-dev libgmock-dev ;;
    sphinx) echo python3-sphinx python3-myst-parser furo ;;
    *) echo "$1" ;;
  esac
}

header() { echo "#include <$1>" | g++ -std=c++20 -E -x c++ - >/dev/null 2>&1; }

# Allows Open MPI to run as root, and with more ranks than cores.
mpi_environment() {
  if [ "$(id -u)" -eq 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
  export OMPI_MCA_rmaps_base_oversubscribe=1
}
