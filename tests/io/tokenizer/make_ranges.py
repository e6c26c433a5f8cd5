# SPDX-License-Identifier: Apache-2.0
# Writes io/tokenizer/unicode_{categories,ranges}.cpp: the properties of every code point as Hugging Face's `tokenizers` has them: those of
# split patterns from its Oniguruma, word characters of single_word from its regex crate, numbers of the pre-tokenizer Digits from Rust
# itself, and punctuation from the pre-tokenizer Punctuation.
#   pip install tokenizers==0.23.3 && python tests/io/tokenizer/make_ranges.py && clang-format -i io/tokenizer/unicode_*.cpp
import pathlib

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


def punctuation():
    split = pre_tokenizers.Punctuation("isolated")
    return [c for c in points if len(split.pre_tokenize_str("a" + chr(c) + "b")) == 3]


def ranges(found):
    out = []
    for c in found:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def array(head, entries):
    line, lines = "   ", []
    for entry in entries:
        if len(line + entry) > 119:
            lines.append(line)
            line = "   "
        line += entry
    return "%s = {\n%s\n};\n" % (head, "\n".join(lines + [line]))


def table(name, found):
    return array("constexpr Range %s[]" % name, [" {0x%X, 0x%X}," % (first, last) for first, last in ranges(found)])


# In the order of unicode::Category.
categories = "Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cs".split()


def category_runs():
    of = {}
    for i, name in enumerate(categories):
        if name not in ("Cn", "Cs"):
            for c in members(r"\p{%s}" % name):
                assert c not in of
                of[c] = i
    of.update((c, categories.index("Cs")) for c in range(0xD800, 0xE000))
    runs = [c for c in range(0x110000) if c == 0 or of.get(c, 0) != of.get(c - 1, 0)]
    return [" 0x%X," % (c * 32 + of.get(c, 0)) for c in runs]


def write(name, what, include, body, functions):
    (pathlib.Path(__file__).resolve().parents[3] / "io/tokenizer" / name).write_text(
        "// SPDX-License-Identifier: Apache-2.0\n// %s; made by tests/io/tokenizer/make_ranges.py, not by hand.\n\n"
        '#include "io/tokenizer/%s"\n\nnamespace tessera::io::unicode {\n\nnamespace {\n\n// clang-format off\n%s// clang-format on\n\n'
        "}  // namespace\n\n%s\n\n}  // namespace tessera::io::unicode\n" % (what, include, body, functions))


write("unicode_categories.cpp", "The general categories", "unicode_ranges.hpp",
      array("constexpr std::uint32_t runs[]", category_runs()), "std::span<const std::uint32_t> category_runs() { return runs; }")
tables = {"space": members(r"\s"), "pattern_word": members(r"\w"), "newer_number": digits(), "word": words(), "punctuation": punctuation()}
write("unicode_ranges.cpp", "The ranges", "unicode_ranges.hpp",
      "\n".join(table(name + "s", found) for name, found in tables.items()),
      "\n".join("std::span<const Range> %s_ranges() { return %ss; }" % (name, name) for name in tables))
