#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The packages: what the .deb contains and needs, a .tar.gz that runs where it is unpacked, and the .deb and the wheel
# installed in a bare Debian (as root, where mmdebstrap is there and reaches a mirror), which then train.
#   package.sh CPACK BUILD_DIR SOURCE_DIR
set -eu
cpack=$1 build=$2 source=$3
work=$(mktemp -d)
root=$work/debian
finish() {
  for point in dev/shm sys proc; do ! mountpoint -q "$root/$point" || umount -l "$root/$point"; done
  rm -rf "$work"
}
trap finish EXIT
cd "$work"
fail() { echo "FAILED: $*"; [ ! -f log ] || tail -30 log; exit 1; }

if ! command -v dpkg-shlibdeps > /dev/null; then echo "skipped: needs dpkg-dev"; exit 77; fi
"$cpack" --config "$build/CPackConfig.cmake" -G 'DEB;TGZ' -B "$work" > log 2>&1 || fail "cpack: exit $?"
deb=$(echo tessera_*.deb) archive=$(echo tessera-*.tar.gz)
[ -s "$deb" ] && [ -s "$archive" ] || fail "no packages: $(ls)"

dpkg-deb -c "$deb" | awk '{ print substr($6, 2) }' > files
for file in bin/tessera share/man/man1/tessera.1 share/bash-completion/completions/tessera share/zsh/site-functions/_tessera \
  share/fish/vendor_completions.d/tessera.fish share/doc/tessera/copyright share/doc/tessera/LICENSE share/doc/tessera/README.md \
  share/doc/tessera/docs/cli.md share/doc/tessera/docs/first-hour.md share/doc/tessera/jobs/examples/{first,quickstart}.yaml share/doc/tessera/jobs/examples/chat/tokenizer.json \
  share/tessera/templates/slurm.sh include/tessera/runtime/train/trainer.hpp; do
  grep -qx "/usr/$file" files || fail "no /usr/$file in the package"
done
for layer in base kernels comm shard models io plan train infer; do
  grep -q "/libtessera_$layer.so" files || fail "no libtessera_$layer.so in the package"
done
! grep -vE '^/$|^/usr/' files || fail "files outside /usr"
needs=$(dpkg-deb -f "$deb" Depends)
for library in openmpi-bin libopenmpi libhdf5-openmpi libyaml zlib1g libzstd1 libicu libonig5 libhwloc15 libboost-program-options libc6; do
  grep -q "$library" <<< "$needs" || fail "does not depend on $library: $needs"
done
! grep -q tessera <<< "$needs" || fail "depends on itself: $needs"

# Its libraries are found beside it, wherever it lies.
mkdir elsewhere && tar -xzf "$archive" -C elsewhere
tessera=$(echo elsewhere/tessera-*/bin/tessera)
env -u LD_LIBRARY_PATH ldd "$tessera" | grep 'libtessera_' | grep -v "$work/elsewhere/" && fail "libraries of elsewhere"
"$tessera" plan --shape small --world_size 4 > log 2>&1 || fail "the unpacked program: exit $?"

# The wheel: in it, under the names that they are loaded by, are the libraries of the system but for MPI's.
wheel=
if command -v patchelf > /dev/null && command -v python3 > /dev/null; then
  python3 "$source/jobs/packaging/wheel.py" "$archive" "$work" > log 2>&1 || fail "wheel.py: exit $?"
  wheel=$(echo tessera-*-py3-none-manylinux_*.whl)
  [ -s "$wheel" ] || fail "no wheel: $(ls)"
  python3 -m zipfile -l "$wheel" > wheel.files
  for file in scripts/tessera lib/tessera/lib/libtessera_train.so lib/tessera/lib/libhdf5 share/doc/tessera/licences/libopenblas; do
    grep -q "$file" wheel.files || fail "no $file in the wheel"
  done
  ! grep -E 'lib/(libmpi|libopen-|libc\.so|libstdc)' wheel.files || fail "libraries that a wheel must not bring"
fi

# Links between the pages lead somewhere.
documents=$(echo elsewhere/tessera-*/share/doc/tessera)
for page in "$documents"/README.md "$documents"/docs/*.md; do
  grep -oE '\]\([^)# ]+(#[^) ]*)?\)' "$page" | sed 's/^](//; s/[#)].*//' | while read -r target; do
    case $target in https:*) continue ;; esac
    [ -e "$(dirname "$page")/$target" ] || { echo "$page: $target is not there"; exit 1; }
  done || fail "links"
done

# The image's packages are made by the commands that the documentation names.
for words in 'jobs/package' 'apt-get install -y --no-install-recommends'; do
  grep '^RUN' "$source/jobs/Dockerfile" | grep -qF "$words" && grep -qF "$words" "$source/docs/install.md" || fail "\"$words\": Dockerfile, install.md"
done

if [ "$(id -u)" != 0 ] || ! command -v mmdebstrap > /dev/null ||
  ! timeout 400 mmdebstrap --variant=apt bookworm "$root" > log 2>&1; then
  echo "the packages are good; skipped: the bare Debian, which needs root, mmdebstrap and a mirror"
  exit 77
fi
mkdir -p "$root/dev/shm"
mount -t proc proc "$root/proc" && mount -t sysfs sysfs "$root/sys" && mount -t tmpfs tmpfs "$root/dev/shm" || fail "no mounts"
cp "$deb" ${wheel:+"$wheel"} "$root/tmp/"
inside() { timeout 300 chroot "$root" env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "$@" > log 2>&1; }
inside apt-get update || fail "apt-get update"
get() { inside env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" || fail "apt-get install $*"; }
# trains PROGRAM DATA OUTPUT
trains() {
  inside "$1" launch -n 2 -- train --shape small --dataset "$2" --max_length 32 --max_steps 2 --output_dir "$3" \
    --add_version false || fail "training by $1: exit $?"
  grep -q '^done 2/2' log || fail "training by $1"
}
if [ -n "$wheel" ]; then
  get python3-venv
  inside python3 -m venv /opt/venv || fail "python3 -m venv"
  inside /opt/venv/bin/pip install --no-index "/tmp/$wheel" || fail "pip install"
  status=0 && inside /opt/venv/bin/tessera --version || status=$?
  [ $status = 2 ] && grep -q '^error: Open MPI 4 is not installed' log || fail "without Open MPI: exit $status"
fi
get "/tmp/$deb"
trains tessera /usr/share/doc/tessera/README.md /tmp/out
inside tessera generate --model /tmp/out --prompt abc --max_new_tokens 2 --json || fail "generating: exit $?"
inside apt-get remove -y tessera || fail "apt-get remove"
[ -z "$(find "$root/usr" -path '*tessera*' -not -type d)" ] || fail "left behind: $(find "$root/usr" -path '*tessera*')"
if [ -n "$wheel" ]; then
  trains /opt/venv/bin/tessera /opt/venv/lib/tessera/share/doc/tessera/README.md /tmp/wheel
  inside /opt/venv/bin/pip uninstall -y tessera || fail "pip uninstall"
  [ -z "$(find "$root/opt/venv" -path '*tessera*' -not -type d)" ] || fail "the wheel left: $(find "$root/opt/venv" -path '*tessera*')"
fi
echo "good; installed in a bare Debian, which trained"
