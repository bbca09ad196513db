# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""Makes tests/golden/gguf_blocks.json: blocks of every quantised GGUF type and their values.

  pip install gguf numpy && python3 tests/golden/gen_gguf_blocks.py > tests/golden/gguf_blocks.json

The bytes are random (all bit patterns mean something; only the scales are kept small and
finite), the values are what the PyPI package `gguf` makes of them, in float32.
"""
import json

import numpy
from gguf import GGMLQuantizationType as Type
from gguf import GGML_QUANT_SIZES, quants

# Where a block has its halves.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
COLUMNS = 512


def main():
    rng = numpy.random.default_rng(7)
    types = []
    for name, halves in HALVES.items():
        elements, size = GGML_QUANT_SIZES[Type[name]]
        blocks = rng.integers(0, 256, (COLUMNS // elements, size), dtype=numpy.uint8)
        for at in halves:
            scale = rng.uniform(-0.1, 0.1, len(blocks)).astype(numpy.float16)
            blocks[:, at:at + 2] = scale.view(numpy.uint8).reshape(-1, 2)
        values = quants.dequantize(blocks.reshape(1, -1), Type[name]).reshape(-1)
        types.append({"type": int(Type[name]), "name": name, "bytes": blocks.tobytes().hex(),
                      "values": values.astype("<f4").tobytes().hex()})
    print(json.dumps({"columns": COLUMNS, "types": types}, indent=0))


if __name__ == "__main__":
    main()
