# SPDX-License-Identifier: Apache-2.0
# Makes token files in the format of Megatron-LM's MMapIndexedDataset, version 1: for each type of ids a .bin and an .idx.
# Documents of several sequences, an empty document, and ids at the limits of the type. The tests read these files and
# need no Python. Run in this folder: python make_megatron.py (numpy alone)
import struct

import numpy as np

CODES = {np.uint8: 1, np.int32: 4, np.int64: 5, np.float32: 7, np.uint16: 8}


def write(name, dtype, documents):
    sequences = [np.array(sequence, dtype=dtype) for document in documents for sequence in document]
    sizes = np.array([len(sequence) for sequence in sequences], dtype=np.int32)
    pointers = np.concatenate([[0], np.cumsum(sizes.astype(np.int64) * dtype().itemsize)[:-1]]).astype(np.int64)
    first = np.concatenate([[0], np.cumsum([len(document) for document in documents])]).astype(np.int64)
    with open(name + ".bin", "wb") as file:
        for sequence in sequences:
            file.write(sequence.tobytes(order="C"))
    with open(name + ".idx", "wb") as file:
        file.write(b"MMIDIDX\x00\x00")
        file.write(struct.pack("<QBQQ", 1, CODES[dtype], len(sizes), len(first)))
        for array in (sizes, pointers, first):
            file.write(array.tobytes(order="C"))


documents = [[[5, 6, 7]], [[1], [2, 3]], [], [[100, 101, 102, 103, 9]], [[4, 9]]]
write("u8", np.uint8, documents)
write("u16", np.uint16, documents + [[[65535, 0]]])
write("i32", np.int32, documents + [[[2147483647, 0]]])
write("i64", np.int64, documents)
write("f32", np.float32, documents)
write("negative", np.int32, documents + [[[7, -1]]])
