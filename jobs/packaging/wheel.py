#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a wheel of a package that jobs/package has built: the program, its libraries, pages and templates.

    wheel.py tessera-VERSION-SYSTEM.tar.gz FOLDER

The wheel holds no Python but the name: pip puts a shell script `tessera` beside its own, and the tree of the package
into lib/tessera. Libraries of the system that the program needs go with it, but for those of glibc, of Open MPI (the
program must use the one whose mpirun starts it) and of CUDA (the driver's). Needs patchelf, and dpkg for licences.
"""
import base64
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import zipfile

# Of glibc and GCC, as the policy of manylinux has it; of Open MPI and what it loads; of the GPU's driver and toolkit.
LEFT_OUT = re.compile(
    r"(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|nsl|mvec|stdc\+\+|gcc_s)"
    r"|libmpi.*|libopen-(rte|pal)|libpmix|libhwloc|libevent.*|libudev|libucp|libucs|libfabric"
    r"|libcuda|libcudart|libcublas.*|libcudnn.*|libnccl|libnvidia-ml|libOpenCL)\.so.*")
DROPPED = ("include/", "lib/cmake/", "lib/pkgconfig/")

START = """#!/bin/sh
# Starts the program of this wheel, with the Open MPI of the machine.
place=$(dirname "$(readlink -f "$0")")/../lib/tessera
has_mpi() {
  { /sbin/ldconfig -p || ldconfig -p; } 2>/dev/null | grep -q 'libmpi\\.so\\.40' && return
  old_ifs=$IFS IFS=:
  for folder in $LD_LIBRARY_PATH; do [ ! -e "$folder/libmpi.so.40" ] || { IFS=$old_ifs; return 0; }; done
  IFS=$old_ifs
  return 1
}
has_mpi || {
  echo 'error: Open MPI 4 is not installed: no libmpi.so.40 in the system or in LD_LIBRARY_PATH. Install it' \\
    '(Debian: apt-get install openmpi-bin), or load its module' >&2
  exit 2
}
exec "$place/bin/tessera" "$@"
"""


def fail(text):
    print(f"error: {text}", file=sys.stderr)
    sys.exit(1)


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def needed_libraries(binaries):
    """Name to path of what the binaries load, beside each other and what is left out."""
    found = {}
    own = {os.path.basename(path) for path in binaries}
    for binary in binaries:
        for line in run("ldd", binary).splitlines():
            parts = line.split()
            if "not found" in line:
                if not LEFT_OUT.fullmatch(parts[0]):
                    fail(f"{binary} needs {parts[0]}, which is not found")
            elif len(parts) > 2 and parts[1] == "=>" and parts[0] not in own and not LEFT_OUT.fullmatch(parts[0]):
                found[parts[0]] = parts[2]
    return found


def only_for_left_out(libraries, binaries):
    """Names that nothing in the wheel asks for: what the libraries left out load by themselves."""
    wanted, todo = set(), list(binaries)
    while todo:
        text = run("patchelf", "--print-needed", todo.pop())
        for name in text.split():
            if name in libraries and name not in wanted:
                wanted.add(name)
                todo.append(libraries[name])
    return set(libraries) - wanted


def package_of(path):
    """The Debian package of a library; it may be known by its place before /lib became a link to /usr/lib."""
    for name in (path, path.removeprefix("/usr")):
        try:
            return run("dpkg", "-S", name).split(":")[0]
        except (OSError, subprocess.CalledProcessError):
            pass
    fail(f"no package is known that {path} is of, and with it no licence")


def add_libraries(tree):
    folder = os.path.join(tree, "lib")
    binaries = [os.path.join(at, name) for at, _, names in os.walk(tree) for name in names
                if is_elf(os.path.join(at, name))]
    libraries = needed_libraries(binaries)
    for name in only_for_left_out(libraries, binaries):
        del libraries[name]
    licences = os.path.join(tree, "share/doc/tessera/licences")
    os.makedirs(licences, exist_ok=True)
    for name, path in sorted(libraries.items()):
        copy = os.path.join(folder, name)
        shutil.copyfile(os.path.realpath(path), copy)
        os.chmod(copy, 0o644)
        run("patchelf", "--set-rpath", "$ORIGIN", copy)
        package = package_of(os.path.realpath(path))
        shutil.copyfile(f"/usr/share/doc/{package}/copyright", os.path.join(licences, name + ".txt"))
    return sorted(libraries)


def take_tree(archive, tree):
    """The files of the package that a program needs; a library once, under the name that others load it by."""
    with tempfile.TemporaryDirectory() as work:
        with tarfile.open(archive) as package:
            package.extractall(work)
        root = os.path.join(work, os.listdir(work)[0])
        for at, _, names in os.walk(root):
            for name in names:
                path = os.path.join(at, name)
                place = os.path.relpath(path, root)
                library = re.fullmatch(r"lib/.*\.so(\..*)?", place)
                if place.startswith(DROPPED) or (library and name != soname(path)):
                    continue
                os.makedirs(os.path.dirname(os.path.join(tree, place)), exist_ok=True)
                shutil.copy(os.path.realpath(path), os.path.join(tree, place))


def soname(path):
    return run("patchelf", "--print-soname", os.path.realpath(path)).strip()


def newest_glibc(tree):
    versions = set()
    for at, _, names in os.walk(tree):
        for name in names:
            path = os.path.join(at, name)
            if is_elf(path):
                versions.update(re.findall(r"GLIBC_(\d+)\.(\d+)", run("objdump", "-T", path)))
    return max((int(major), int(minor)) for major, minor in versions)


def write_wheel(tree, version, folder):
    major, minor = newest_glibc(tree)
    tag = f"py3-none-manylinux_{major}_{minor}_{os.uname().machine}"
    info = f"tessera-{version}.dist-info"
    with open(os.path.join(tree, "share/doc/tessera/README.md"), encoding="utf-8") as file:
        readme = file.read()
    metadata = (f"Metadata-Version: 2.1\nName: tessera\nVersion: {version}\n"
                "Summary: Trains transformer language models sharded over MPI ranks\nLicense: Apache-2.0\n"
                f"Requires-External: openmpi (>=4.1)\nDescription-Content-Type: text/markdown\n\n{readme}")
    wheel = f"Wheel-Version: 1.0\nGenerator: tessera-wheel ({version})\nRoot-Is-Purelib: false\nTag: {tag}\n"
    path = os.path.join(folder, f"tessera-{version}-{tag}.whl")
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        def add(name, data, mode):
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = (stat.S_IFREG | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            out.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")
        for at, _, names in sorted(os.walk(tree)):
            for name in sorted(names):
                file = os.path.join(at, name)
                with open(file, "rb") as data:
                    add(f"tessera-{version}.data/data/lib/tessera/{os.path.relpath(file, tree)}", data.read(),
                        0o755 if os.access(file, os.X_OK) else 0o644)
        add(f"tessera-{version}.data/scripts/tessera", START.encode(), 0o755)
        add(f"{info}/METADATA", metadata.encode(), 0o644)
        add(f"{info}/WHEEL", wheel.encode(), 0o644)
        record.append(f"{info}/RECORD,,")
        out.writestr(f"{info}/RECORD", "\n".join(record) + "\n")
    return path


def main():
    if len(sys.argv) != 3:
        fail("wheel.py PACKAGE.tar.gz FOLDER")
    archive, folder = sys.argv[1:]
    version = re.search(r"tessera-([0-9.]+)-", os.path.basename(archive))
    if version is None:
        fail(f"{archive} is not named tessera-VERSION-SYSTEM.tar.gz")
    with tempfile.TemporaryDirectory() as tree:
        take_tree(archive, tree)
        libraries = add_libraries(tree)
        path = write_wheel(tree, version.group(1), folder)
    print(f"{path}\n{len(libraries)} libraries beside those of Tessera: {' '.join(libraries)}")


if __name__ == "__main__":
    main()
