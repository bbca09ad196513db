# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0
"""Writes engine/text/unicode_ranges.inc from tests/golden/unicode_classes.json.

usage: gen_unicode.py < tests/golden/unicode_classes.json > engine/text/unicode_ranges.inc

The classes are those that the reference pre-tokenizers use (letters, numbers, white space);
a code point that only the digit splitter takes for a digit is a class of its own.
"""
import json
import sys

KINDS = {"L": "kLetter", "N": "kNumber", "S": "kSpace"}


def main():
    classes = json.load(sys.stdin)
    rows = []
    numbers = set()
    for key, kind in KINDS.items():
        for first, last in classes[key]:
            rows.append((first, last, kind))
            if key == "N":
                numbers.update(range(first, last + 1))
    digits = {c for first, last in classes["digit_split"] for c in range(first, last + 1)}
    if numbers - digits:
        raise SystemExit("a number that the digit splitter does not know")
    for point in sorted(digits - numbers):
        if rows[-1][2] == "kDigit" and rows[-1][1] == point - 1:
            rows[-1] = (rows[-1][0], point, "kDigit")
        else:
            rows.append((point, point, "kDigit"))
    rows.sort()
    print("// SPDX-FileCopyrightText: Baton developers")
    print("// SPDX-License-Identifier: Apache-2.0")
    print("//")
    print("// Made by engine/text/gen_unicode.py; do not edit.  Sorted, disjoint.")
    line = ""
    for first, last, kind in rows:
        cell = f"{{0x{first:x}, 0x{last:x}, CharClass::{kind}}}, "
        if len(line) + len(cell) > 98:
            print(line.rstrip())
            line = ""
        line += cell
    print(line.rstrip())


main()
