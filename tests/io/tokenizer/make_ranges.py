# SPDX-License-Identifier: Apache-2.0
# Writes io/tokenizer/unicode_ranges.cpp: the classes of every code point as Hugging Face's `tokenizers` has them: those of split patterns
# from its Oniguruma, word characters from its regex crate, and numbers of the pre-tokenizer Digits from Rust itself.
#   pip install tokenizers==0.23.3 && python tests/io/tokenizer/make_ranges.py > io/tokenizer/unicode_ranges.cpp
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def members(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    found = []
    for i in range(0, len(points), 4096):
        part = points[i : i + 4096]
        left = set("".join(piece for piece, _ in split.pre_tokenize_str("".join(map(chr, part)))))
        found += [c for c in part if chr(c) not in left]
    return found


def words():
    """Characters before which a token with single_word is not found."""
    tokenizer = Tokenizer(models.BPE(unk_token="?", vocab={"?": 0}, merges=[]))
    tokenizer.add_tokens([AddedToken("<w>", single_word=True, normalized=False)])
    return [c for c in points if tokenizer.token_to_id("<w>") not in tokenizer.encode(chr(c) + "<w>").ids]


def digits():
    """Numbers of Digits that \\p{N} does not have."""
    split, known = pre_tokenizers.Digits(individual_digits=True), set(members(r"\p{N}"))
    found = {c for c in points if len(split.pre_tokenize_str("a" + chr(c) + "b")) == 3}
    assert known <= found
    return sorted(found - known)


def ranges(found):
    out = []
    for c in found:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def table(name, found):
    line, lines = "   ", []
    for first, last in ranges(found):
        entry = " {0x%X, 0x%X}," % (first, last)
        if len(line + entry) > 128:
            lines.append(line)
            line = "   "
        line += entry
    lines.append(line)
    return "constexpr Range %s[] = {\n%s\n};\n" % (name, "\n".join(lines))


print("// The ranges; made by tests/io/tokenizer/make_ranges.py, not by hand.\n")
print('#include "io/tokenizer/unicode_ranges.hpp"\n\nnamespace tessera::io::unicode {\n\nnamespace {\n\n// clang-format off')
for name, pattern in (("letters", r"\p{L}"), ("numbers", r"\p{N}"), ("spaces", r"\s"), ("marks", r"\p{M}")):
    print(table(name, members(pattern)))
print(table("newer_numbers", digits()))
print(table("words", words()))
print("// clang-format on\n\n}  // namespace\n")
for name in ("letter", "number", "space", "mark", "newer_number", "word"):
    print("std::span<const Range> %s_ranges() { return %ss; }" % (name, name))
print("\n}  // namespace tessera::io::unicode")
