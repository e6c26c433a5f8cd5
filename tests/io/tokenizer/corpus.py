# SPDX-License-Identifier: Apache-2.0
# Texts that tokenizers stumble over: scripts, marks, emoji, white space, broken UTF-8, look-alikes of special tokens. Used by make_golden.py
# and compare.py; every text is bytes.
import random

sentences = [
    "The quick brown fox doesn't jump over the lazy dog; it's 12345.67 metres away, isn't it? I'M sure THEY'LL see, we'Ve been.",
    "Größe, Straße, Übermut und ein naïver Café-Besuch – „Anführung“ … ½ ¾ ² ³ № 42",
    "Съешь ещё этих мягких французских булок, да выпей же чаю. Ἐν ἀρχῇ ἦν ὁ λόγος.",
    "敏捷的棕色狐狸跳过懒狗。吾輩は猫である。名前はまだ無い。カタカナと全角ＡＢＣ１２３。빠른 갈색 여우가 게으른 개를 뛰어넘는다.",
    "नमस्ते दुनिया, यह एक परीक्षा है। ক্ষ ஸ்ரீ ไทยไม่มีช่องว่าง ພາສາລາວ မြန်မာ ខ្មែរ አማርኛ ქართული Հայերեն",
    "مرحبا بالعالم ١٢٣٤٥ שלום עולם ‏עִבְרִית‎ ܫܠܡܐ ދިވެހި",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 👍🏽 ☃️ 🅰️ 🧑🏿‍🚀 😀😃 ❤️‍🔥 #️⃣",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙𝟚 𐍈𐌰 𓀀𓀁 𒀀 𠜎𠜱 Ⅷ ⅳ ① ㊿ ᚠᛇᚻ ꙮ ㍿",
    "int main(void) {\n\treturn 0;  // done\n}\n\n\ndef f(x):\r\n    return x**2 - 1\r\n\r\n  if __name__ == '__main__':\n        pass\n",
    "<html><body class=\"a\">&nbsp;x<br/></body></html> https://example.org/a?b=c&d=%20#e user@example.org C:\\x\\y",
]

marks = ["e\u0301a", "a\u0327\u0301", "a\u0301\u0327", "\u0301start", "q\u0323\u0307", "\u1e69", "s\u0323\u0307", "\uac00\u11a8", "\u1100\u1161\u11a8",
         "\u0958", "\ufb01", "\u212b\u2126\u212a", "A\u030a", "\u0344", "\u0374\u037e\u0387", "\U0001d15e", "\u0300\u0301\u0302" * 9,
         "\u1abf\u0301", "a\u1df6\u0323", "\u0f71\u0f72\u0f74", "\ufb1d\u05b4", "\u2adc", "\U0002f800", "\u09c7\u09be", "\u0b47\u0b56",
         "\U00011131\U00011127", "\U00011935\U00011930", "\U000105d2\u0307", "x\U00010d24\u0301", "x\u0897\u0323",
         # runs longer than those that ICU puts in order itself
         "a" + "\u0301" * 40 + "\u0323" * 40, "o\u0302" + "\u0301\u0327\u0345\u0344" * 20, "\u0f40" + "\u0f73\u0f71\u0f74" * 30,
         "q" + "\u0301" * 70 + "\u1ab0\u1df6" * 9 + "\u0323" * 20 + "e\u0301", "\u05b8\u05bc\u05c1" * 30 + "\ufb1d" + "\u0315\u0591" * 40]

spaces = ["a b", "a  b", "a   b", " a", "  a", "a ", "a  ", "a\n", "a\nb", "a\n\nb", "a \nb", "a\n b", "a \n b", "a\r\nb", "a\r\n\r\nb", "\r\r\n\n",
          "a\tb", "\ta", "\t\ta", "a\u00a0b", "a\u00a0\u00a0b", "\u00a0a", "a\u0085b", "a\u2028b\u2029c", "a\u3000\u3000b", "a\u200bb", "a\u200b b",
          "a\ufeffb", "\ufeffa", "a\u180eb", "a\u1680b", "a\u2003 \u2003b", "a\x0b\x0cb", "a\x1cb\x1d\x1e\x1fc", "a" + " " * 100 + "b", " " * 257,
          "\n" * 70, "\n \n \n a", " \n" * 33 + "x", "\t \t\n\t x", "a  b   \n\n\nc", "I'M  here\n\n 12345", "(hello)world", "x\u2009\u2009\ny",
          " \u00a0 \u00a0x", "!\n\n x", " !\r\n\r\n\r", "!! \n?", "a\u00a0\nb \u00a0"]

quotes = ["'s", "'S", "'\u017f", "x'\u017fy", "'ſ'll'LL'lL'Ll", "'re'RE'rE've'VE'm'M'd'D't'T", "'\u212a", "''s", "'’s ’s", "'", "' s", "'r", "'l", "'v",
          "'rE", "can't've", "x''''", "'1's", "\n's", " 's", "'ﬆ", "'ß", "'lL1", "'Ve\u0301", "'\u0130", "l'l", "O'Reilly's"]

specials = ["<|endoftext|>", "a<|endoftext|>b", "<|endoftext|", "|endoftext|>", "<|endoftext|><|endoftext|>", " <|endoftext|> ", "<|ENDOFTEXT|>",
            "<<|endoftext|>>", "<|end<|endoftext|>oftext|>", "<|begin_of_text|>x<|end_of_text|>\n", "<|im_start|>user\nhi<|im_end|>\n", "<|im_start",
            "<s>", "</s>", "<s>a</s>", "<unk>", "<s", "< s >", "<0x41>", "<0x0A>", "<0xE2><0x82><0xAC>", "▁", "▁▁a", "a▁b", " ▁ ", "▁ <s> ▁x",
            "<sp>", "  <sp>  x", "a<sp>b", "\u00a0<sp>\n\nz", "one<word>two <word> <word>, <word>\u0301 <word>9 _<word>", "<word>", "é<word>é", "<nor>e\u0301",
            "A\u030aX", "\u00c5X", "<sp><sp>  <sp>", " <word> <sp> <word>", "<long><longer><longest>", "<longes", "<|endoftext|>\u0301", "ÅX<s>ÅX"]

broken = [b"\xff", b"a\xffb", b"\x80", b"\xc3", b"\xc3(", b"\xe2\x82", b"\xe2\x82x", b"\xe2(\xa1", b"\xf0\x9f\x98", b"\xf0\x9f\x98\x80\xf0\x9f", b"\xed\xa0\x80",
          b"\xed\xbf\xbf", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xf5x", b"ok \xc3\xa9 \xe9 \xc3", b"\xf0\x80\x80\x41",
          b"<|end\xffoftext|>", b"abcdefg\xe2\x82\xac\xe2\x82", b"\xfe\xff", b"x\x00y", b"\x00", b"\xef\xbf\xbd\xef\xbf"]

digits = ["1", "12", "123", "1234", "12345", "1234567", " 1", "  12", "a1b22c333d4444", "1.2.3", "1,234,567", "٣٤٥٦", "½1", "1st", "0x1F", "²³¹⁰", "1" * 100]

hard = ["", "a", " ", "\n", "Aa" * 200, "ab" * 513, "=" * 300, "-=" * 99, "é" * 150, "漢" * 97, "😀" * 65, "a\u0301" * 90, "\u0301" * 64, "\U0010ffff\ue000\ufffe",
        "".join(chr(c) for c in range(1, 256)), "".join(chr(c) for c in range(0x300, 0x500)), "supercalifragilisticexpialidocious" * 3,
        "".join(chr(c) for c in range(0x1F300, 0x1F3A0)), "z" * 31, "z" * 32, "z" * 33, "antidisestablishmentarianism" + "q" * 2 + "antidisestablishmentarianismx"]


def golden():
    texts = [t.encode("utf-8", "surrogatepass") for t in sentences + marks + spaces + quotes + specials + digits + hard]
    return texts + broken + [t.encode() for t in cases]


# Long ones, made by the same rule in the test: (unit, times).
# Of o200k, Tekken, DeepSeek, Falcon, NFKC and the engine.
cases = ["camelCase HTTPServer ABCdef\u01c5x iPhone's HTML'S \u02b0A\u4e2dB\u4e2d", "!\n/x ?/\n//y .\n\n/ \u0301A B\u0301c", "x\u0301'S'Ll \u4e2d\u6587'll",
         "3.14x\x01y\x02\x0312a \u00adz\u00ad", "\u4e2d\u6587123\u3042\u30a21\u3040\u9fa6\u3100", "12a\u00b2\u00bd3456789 0123", "a,,b..(c)!?\u2026\u3002 $5 +x \u00a7",
         "\uff21\ufb01\u2460\u00b5\u3392\ufdfa\u00a0\uff9e\u0301", "   x   \n  ", "a \n", "x\u2028 ", "_a__B \u203fc", "AB1CD22\u0301E"]

long_ones = [("a", 1 << 20), ("the", 50000), (" ", 1 << 20), ("\n", 100000), ("ab1 ", 50000), ("漢字", 50000), ("e\u0301", 50000), ("\u0301\u0323\u0327", 50000), ("<|endoftext|>", 10000),
             ("'s\u017f", 30000), ("▁", 50000), ("=-", 100000), ("a\n", 50000), (" \n", 50000), ("1", 100000)]

alphabets = [
    "aBcDE\u01c5\u02b0\u4e2d\u0301\u00c9\u00e9 'sL/\n1!",
    "12\u00b2\u0663\u4e2d\u3042\u30a2\u3040\u9fa6\x01\u00ad .a\u0301\n",
    "!?.,;:()[]{}$+=<>_-\u2026\u3002\uff0c\u00a7\u20ac aB1/\n\r",
    "\uff21\ufb01\u2460\u00bd\u3392\ufdfa\uff9e\uff9f\u3099\u0301\u0323\ufc5e a",
    "abcdefghij ABC XYZ 0123 ' \n",
    " \n\r\t\u00a0\u2003x1!",
    "'sStTrReEvVmMlLdD\u017f x1",
    "aeiou\u0300\u0301\u0302\u0308\u0323\u0327\u0328\u0345 \u1ea4",
    "<>|_endoftx im_startsp word unk0xAF\u2581",
    "漢字かなカナ한국어 ก็ไทยनमस्तेعربי",
    "😀👍🏽👩‍👧\ufe0f\u200d🇩🇪 a",
]


def random_text(rng):
    """One text: runs from one alphabet or from all of Unicode, sentences cut anywhere, now and then a special token."""
    out = []
    for _ in range(rng.randint(1, 12)):
        kind = rng.random()
        if kind < 0.5:
            alphabet = rng.choice(alphabets)
            out.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 30))))
        elif kind < 0.65:
            out.append("".join(random_point(rng) for _ in range(rng.randint(1, 10))))
        elif kind < 0.85:
            s = rng.choice(sentences)
            i = rng.randrange(len(s))
            out.append(s[i : i + rng.randint(1, 60)])
        else:
            out.append(rng.choice(rng.choice([marks, spaces, quotes, specials, digits])))
    return "".join(out)


def random_point(rng):
    while True:
        c = rng.choice([rng.randrange(0x80), rng.randrange(0x800), rng.randrange(0x3400), rng.randrange(0x10000), rng.randrange(0x20000), rng.randrange(0x110000)])
        if not 0xD800 <= c < 0xE000:
            return chr(c)
