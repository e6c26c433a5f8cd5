# SPDX-License-Identifier: Apache-2.0
"""Tessera with Spack, from a checkout (docs/install.md). Not tried yet."""

from spack.package import *


class Tessera(CMakePackage):
    """Trains transformer language models sharded over MPI ranks."""

    license("Apache-2.0")

    # The source is the folder in which `spack dev-build tessera@0.1.0` runs.
    version("0.1.0")

    variant("openmp", default=True, description="OpenMP threads within a rank")
    variant("onednn", default=True, description="16-bit GEMMs by oneDNN on CPUs with instructions for them")
    variant("cuda", default=False, description="The CUDA backend")
    variant("nccl", default=False, when="+cuda", description="Collectives of devices by NCCL")
    variant(
        "isa",
        default="all",
        values=("all", "portable", "avx2", "avx512", "avx512_bf16", "native"),
        multi=False,
        description="Instruction sets of the kernels",
    )

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("openmpi@4.1:")
    depends_on("openblas threads=pthreads")
    depends_on("onednn@2.6:2.7 cpu_runtime=omp", when="+onednn+openmp")
    depends_on("onednn@2.6:2.7 cpu_runtime=seq", when="+onednn~openmp")
    depends_on("libyaml")
    depends_on("hdf5+mpi")
    depends_on("icu4c")
    depends_on("oniguruma")
    depends_on("zlib-api")
    depends_on("zstd")
    depends_on("hwloc@2:")
    depends_on("boost@1.74:+program_options")
    depends_on("nlohmann-json@3.11:")
    depends_on("cuda@12:", when="+cuda")
    depends_on("nccl", when="+nccl")

    conflicts("%gcc@:11", msg="C++20 as g++ 12 supports it")

    generator("ninja")

    def cmake_args(self):
        return [
            self.define("TESSERA_TESTS", False),
            self.define("CMAKE_UNITY_BUILD", True),
            self.define_from_variant("TESSERA_OPENMP", "openmp"),
            self.define_from_variant("TESSERA_ONEDNN", "onednn"),
            self.define_from_variant("TESSERA_CUDA", "cuda"),
            self.define_from_variant("TESSERA_ISA", "isa"),
        ]
