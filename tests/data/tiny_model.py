#!/usr/bin/env python3
# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0
"""A model that says nothing and is small: for whole clusters on machines that are slow.

    tests/data/tiny_model.py FILE

GGUF, F32, about half a million random weights from a fixed seed; 4 layers, 2 KV heads of 32; a
token for each byte, no merges, so that a prompt has as many tokens as bytes.
"""

import array
import random
import struct
import sys

HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, LAYERS, CONTEXT = 128, 256, 4, 2, 32, 4, 2048
STRING, ARRAY, UINT32, INT32, FLOAT32, BOOL = 8, 9, 4, 5, 6, 7
F32 = 0
ALIGNMENT = 32


def spellings():
    """The byte-level spelling of each byte: itself if it can be seen, else a code point behind 255."""
    seen = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in seen else chr(next(hidden)) for byte in range(256)]


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, kind, value):
    return string(key) + struct.pack("<I", kind) + value


def strings(key, values):
    return entry(key, ARRAY, struct.pack("<IQ", STRING, len(values)) + b"".join(map(string, values)))


def metadata(tokens):
    numbers = {"context_length": CONTEXT, "embedding_length": HIDDEN, "block_count": LAYERS,
               "feed_forward_length": FFN, "attention.head_count": HEADS,
               "attention.head_count_kv": KV_HEADS}
    types = [1] * (len(tokens) - 1) + [3]  # normal; the last is a control token
    return [
        entry("general.architecture", STRING, string("llama")),
        *(entry("llama." + key, UINT32, struct.pack("<I", value)) for key, value in numbers.items()),
        entry("llama.attention.layer_norm_rms_epsilon", FLOAT32, struct.pack("<f", 1e-5)),
        entry("tokenizer.ggml.model", STRING, string("gpt2")),
        entry("tokenizer.ggml.pre", STRING, string("gpt-2")),
        strings("tokenizer.ggml.tokens", tokens),
        strings("tokenizer.ggml.merges", []),
        entry("tokenizer.ggml.token_type", ARRAY,
              struct.pack(f"<IQ{len(types)}i", INT32, len(types), *types)),
        entry("tokenizer.ggml.eos_token_id", UINT32, struct.pack("<I", len(tokens) - 1)),
        entry("tokenizer.ggml.add_bos_token", BOOL, b"\0"),
    ]


def shapes(vocabulary):
    """Name to rows and columns; 1 row: a norm."""
    yield "token_embd.weight", vocabulary, HIDDEN
    yield "output_norm.weight", 1, HIDDEN
    for layer in range(LAYERS):
        for name, rows, columns in (
                ("attn_norm", 1, HIDDEN), ("attn_q", HEADS * HEAD_DIM, HIDDEN),
                ("attn_k", KV_HEADS * HEAD_DIM, HIDDEN), ("attn_v", KV_HEADS * HEAD_DIM, HIDDEN),
                ("attn_output", HIDDEN, HEADS * HEAD_DIM), ("ffn_norm", 1, HIDDEN),
                ("ffn_gate", FFN, HIDDEN), ("ffn_up", FFN, HIDDEN), ("ffn_down", HIDDEN, FFN)):
            yield f"blk.{layer}.{name}.weight", rows, columns


def main():
    tokens = [*spellings(), "<|end|>"]
    random.seed(1)
    infos, data = [], bytearray()
    for name, rows, columns in shapes(len(tokens)):
        dimensions = [columns] if rows == 1 else [columns, rows]
        infos.append(string(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions),
                                                *dimensions, F32, len(data)))
        weights = ([1.0] * columns if rows == 1 else
                   [random.gauss(0, columns ** -0.5) for _ in range(rows * columns)])
        data += array.array("f", weights).tobytes()
        data += bytes(-len(data) % ALIGNMENT)
    entries = metadata(tokens)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(infos), len(entries))
    head += b"".join(entries) + b"".join(infos)
    with open(sys.argv[1], "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT) + data)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
