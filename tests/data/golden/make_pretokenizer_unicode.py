"""Writes src/ballast/data/pretokenizer_unicode_table.cpp: character classes as the original tokenizers see them.

Asks Hugging Face `tokenizers` (Oniguruma) for \\p{L}, \\p{N}, \\s and the two letter sets of o200k, checks them against
`tiktoken` (Rust regex) and asks `tokenizers` which characters end a word for single_word added tokens.
Run from the repository root.
"""
from pathlib import Path

import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CLASSES = {  # flag: pattern
    1: r"\p{L}",
    2: r"\p{N}",
    4: r"\s",
    8: r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]",
    16: r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]",
}
WORD = 32


def hugging_face_class(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    return {c for c in CODE_POINTS if not split.pre_tokenize_str(chr(c))}


def tiktoken_class(pattern):
    ranks = {bytes([b]): b for b in range(256)}
    encoding = tiktoken.Encoding("probe", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return {c for c in CODE_POINTS if encoding.encode_ordinary(chr(c))}


def word_class():
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    tokenizer.add_tokens([AddedToken("zz", single_word=True, normalized=False)])
    return {c for c in CODE_POINTS if 1 not in tokenizer.encode(chr(c) + "zz").ids}


def main():
    flags = [0] * 0x110000
    for flag, pattern in CLASSES.items():
        members = hugging_face_class(pattern)
        other = tiktoken_class(pattern)
        if members != other:
            raise SystemExit(f"{pattern}: tokenizers and tiktoken differ at {[hex(c) for c in sorted(members ^ other)][:20]}")
        for c in members:
            flags[c] |= flag
    for c in word_class():
        flags[c] |= WORD
    runs = [(c << 8) | flags[c] for c in range(0x110000) if c == 0 or flags[c] != flags[c - 1]]
    lines = [
        "// Character classes of Unicode as runs: code point << 8 | flags (pretokenizer_unicode.h); each run reaches to the next.",
        "// Written by tests/data/golden/make_pretokenizer_unicode.py; not for editing by hand.",
        '#include "ballast/data/pretokenizer_unicode.h"',
        "",
        "namespace ballast {",
        "",
        "// clang-format off",
        "const uint32_t kUnicodeRuns[] = {",
    ]
    for i in range(0, len(runs), 11):
        lines.append(" ".join(f"0x{r:x}," for r in runs[i : i + 11]))
    lines += ["};", "// clang-format on", "const size_t kUnicodeRunCount = sizeof(kUnicodeRuns) / sizeof(kUnicodeRuns[0]);", "", "}  // namespace ballast", ""]
    Path("src/ballast/data/pretokenizer_unicode_table.cpp").write_text("\n".join(lines))


main()
