# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the scripts of jobs: what they need, and Debian's package names for it.

# What CMakeLists.txt looks for, and what tests/CMakeLists.txt adds (tests/system/dependencies.sh compares).
build_dependencies=(compiler git pkg-config cmake ninja mpi blas onednn yaml hdf5 zlib zstd icu oniguruma hwloc options json)
# shellcheck disable=SC2034  # read by jobs/test
test_dependencies=("${build_dependencies[@]}" context gtest)

# A layer's sources are compiled as one file or two, which takes a third of the time. One size for every script: what CI
# builds is what users build, and a source that lacks an #include compiles for all of them or for none.
# shellcheck disable=SC2034  # read by jobs/test, jobs/quickstart and jobs/package
unity_build=(-DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=72)

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

# present NAME: whether the build would find it. A header alone says nothing: Debian has all of Boost's in one package.
present() {
  case $1 in
    compiler) command -v g++ >/dev/null ;;
    git | cmake | ninja | file | clang-format | clang-tidy | shellcheck | doxygen | mmdebstrap) command -v "$1" >/dev/null ;;
    mpi) command -v mpirun >/dev/null && command -v mpicc >/dev/null ;;
    pkg-config) command -v pkg-config >/dev/null ;;
    shlibdeps) command -v dpkg-shlibdeps >/dev/null ;;
    blas) has_pkg openblas ;;
    onednn) links 'dnnl.hpp CL/cl.h' dnnl OpenCL ;;
    yaml) has_pkg yaml-0.1 ;;
    hdf5) has_pkg hdf5-openmpi ;;
    zlib) has_pkg zlib ;;
    zstd) has_pkg libzstd ;;
    icu) has_pkg icu-uc ;;
    oniguruma) has_pkg oniguruma ;;
    hwloc) has_pkg 'hwloc >= 2.0' ;;
    options) links boost/program_options/version.hpp boost_program_options ;;
    context) links boost/context/fiber.hpp boost_context ;;
    json) links nlohmann/detail/abi_macros.hpp ;;  # there from version 3.11 on
    iproute2) command -v ip >/dev/null && command -v tc >/dev/null ;;
    gtest) links 'gtest/gtest.h gmock/gmock.h' gtest gmock ;;
    sphinx) "$(sed -n '1s/^#!//p' "$(command -v sphinx-build)")" -c 'import myst_parser, furo' 2>/dev/null ;;
    *) echo "error: jobs/dependencies.sh: unknown dependency '$1'" >&2; exit 1 ;;
  esac
}

has_pkg() { pkg-config --exists "$1" 2>/dev/null; }

# links "HEADER ..." [LIBRARY ...]: whether the headers are there, and a program links with the libraries.
links() {
  local headers=$1 directory status=0
  shift
  directory=$(mktemp -d)
  printf '#include <%s>\n' $headers | g++ -std=c++20 -E -x c++ - >/dev/null 2>&1 &&
    echo 'int main() {}' | g++ -x c++ - "${@/#/-l}" -Wl,--no-as-needed -o "$directory/program" >/dev/null 2>&1 || status=1
  rm -rf "$directory"
  return $status
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
    oniguruma) echo libonig-dev ;;
    hwloc) echo libhwloc-dev ;;
    options) echo libboost-program-options-dev ;;
    context) echo libboost-context-dev ;;
    json) echo nlohmann-json3-dev ;;
    gtest) echo libgtest-dev libgmock-dev ;;
    sphinx) echo python3-sphinx python3-myst-parser furo ;;
    *) echo "$1" ;;
  esac
}

# Allows Open MPI to run as root, and with more ranks than cores.
mpi_environment() {
  if [ "$(id -u)" -eq 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
  export OMPI_MCA_rmaps_base_oversubscribe=1
}
