# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""Makes tests/golden/pre_tokenizer_llama3.jsonl: where Llama 3's pre-tokenizer cuts texts.

  pip install tokenizers && python3 tests/golden/gen_pre_tokenizer.py

The reference is HF `tokenizers` with the pattern of Llama 3's tokenizer.json; the texts are
those of tokenizer_smollm2.jsonl, thinned out, and some for this pattern's corners.
A line: [text, [bytes of each piece, ...]].
"""
import json
import pathlib

from tokenizers import Regex, pre_tokenizers

HERE = pathlib.Path(__file__).parent
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
           r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CORNERS = ["It'S I'LL we'Re 'sx ''s 'ſ 'K", "1234567 12 ½²Ⅳ1234", "a  \n \n  b", "x!!\r\n\r\n y", " \t\n",
           "\tabc\u00a0def", "...\n\n\nabc", "  12", " !? \n!", "a\r b\n", "\n\n  x", "$abc €5",
           "'tis 'Twas", "\u0301a b\u0301", "𝒜𝒷 1𝟎2", "'\u017f\u212a"]


def main():
    texts = []
    with open(HERE / "tokenizer_smollm2.jsonl", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            row = json.loads(line)
            if row["kind"] == "encode" and len(row["text"]) <= 120 and number % 3 == 0:
                texts.append(row["text"])
    split = pre_tokenizers.Split(Regex(PATTERN), behavior="isolated", invert=False)
    with open(HERE / "pre_tokenizer_llama3.jsonl", "w", encoding="utf-8") as out:
        for text in texts + CORNERS:
            pieces = [piece for piece, _ in split.pre_tokenize_str(text)]
            assert "".join(pieces) == text
            row = [text, [len(piece.encode()) for piece in pieces]]
            out.write(json.dumps(row, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
