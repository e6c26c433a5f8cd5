#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""superblock0.h5: a plain HDF5 file as h5py writes it by default, in the oldest form (superblock 0, headers without checksums).

    python tests/io/golden/make_superblock0.py tests/io/golden/superblock0.h5
"""
import sys

import h5py
import numpy

with h5py.File(sys.argv[1], "w", libver=("earliest", "v108")) as file:
    file.attrs["format"] = numpy.bytes_("tessera-checkpoint")
    file.attrs["step"] = 3
    for group in ("model", "optimizer/exp_avg"):
        for name, shape in (("wte.weight", (5, 3)), ("ln_f.bias", (3,))):
            file[f"{group}/{name}"] = numpy.arange(numpy.prod(shape), dtype=numpy.float32).reshape(shape)
