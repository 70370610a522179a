"""Trains the small tokenizers of the tests with the original libraries and writes their ids of difficult texts.

    python tests/data/golden/make_tokenizer_golden.py --text train.jsonl

`--text` is GSM8K's train.jsonl (MIT). Needs tokenizers, tiktoken, sentencepiece, transformers and jinja2. Run from the repository
root; writes into tests/data/golden. TestPlans.txt and cl100k_base.tiktoken there come from projects under the MIT licence.
"""
import argparse
import json
import random
from pathlib import Path

import sentencepiece
import tiktoken
from tiktoken.load import data_gym_to_mergeable_bpe_ranks, load_tiktoken_bpe
from tiktoken_ext import openai_public
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

GOLDEN = Path("tests/data/golden")
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3_SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
QWEN_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

NASTY = [
    "",
    " ",
    "a",
    "  two  spaces  and end  ",
    "line\nline\r\nline\rline\n\n\n  indented\n\t\ttabs\t",
    "\n \n  \n",
    "   \n",
    "trailing newline and spaces\n   ",
    "don't DON'T we'll WE'LL I'Ve they'RE 'S 'sup 'lLama 'Re'd o'clock '' ' 's's",
    "\u2019s isn\u2019t '\u017f '\u017ft x'\u017f",
    "1 12 123 1234 12345 1234567890 3.14159 1,000,000 0x1F \u0661\u0662\u0663\u0664 \u00bd\u00b2\u00b3 \u2167 \U0001d7d8\U0001d7d9",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f3f3\ufe0f\u200d\U0001f308 \U0001f44d\U0001f3fd \U0001f1e9\U0001f1ea \u2764\ufe0f",
    "e\u0301 \u00e9 o\u0302\u0323 \u1ed9 n\u0303o A\u030a \u212b \u2126 \ufb01ne \u1e9b\u0323 q\u0307\u0323",
    "\u0627\u0644\u0633\u0644\u0627\u0645 \u0639\u0644\u064a\u0643\u0645 \u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd \u202babc\u202c \u200fx\u200e",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01 \u3053\u3093\u306b\u3061\u306f \uc548\ub155\ud558\uc138\uc694 \u1112\u1161\u11ab \u3000\u5168\u89d2\u3000",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22\u0e20\u0e32\u0e29\u0e32 \u1019\u103c\u1014\u103a\u1019\u102c \u0f56\u0f7c\u0f51",
    "\x00\x01\x02 nul\x00inside \x07bell \x1b[31mred\x1b[0m \x7fdel \x80\x85\x9f next\x85line",
    "nbsp\u00a0between\u00a0\u00a0 thin\u2009space \u202fnarrow \u1680ogham \u180emongolian\u180e \u2028line\u2029para \u205f",
    "\ufeffbom at start and \ufeff inside",
    "\ud7ff\ue000\uffff\ufffe\ufffd \U0001ffff \U0010ffff \U00010000",
    "zero\u200bwidth\u200cnon\u200djoiner\u2060 soft\u00adhyphen",
    "\u01c5 \u01c8 \u1f88 \u02b0\u02b1 \u2c7c HELLOworld helloWORLD camelCase SCREAMING_SNAKE \u00c0\u00c9\u00ce\u00f5\u00fc \u01c5abc A\u0301B",
    "\u1c89\u1c8a \ua7cb\ua7da \U00010d40\U00010d45 \U00016d40 \U0001ccf0 \U0001e5f1 new in Unicode 15 and 16",
    "<|endoftext|> <|im_start|>user\n<|im_end|><|begin_of_text|><|eot_id|> <|endoftext <|>|",
    "  <mask>  <mask> x<mask>y  word  wordy sword word.word <pad>\t \n<pad>  \u00e9t\u00e9 e\u0301te\u0301 <s> </s> [INST]",
    "for (int i = 0; i < n; ++i) {\n\t\tsum += a[i] * b[i];  // add\n\t}\r\n\r\n",
    "http://www.example.com/a/b?c=d&e=%20f#g user@example.org ///// \\\\ //\n/",
    "!!!??? ... --- *** ,,, ;;; \u2026 \u2014 \u00ab\u00bb \u201c\u201d \u20ac\u00a3\u00a5 \u00a9\u00ae\u2122 \u2211\u222b\u221a",
    "a" * 300,
    " " * 300,
    "\n" * 300,
    "1" * 301,
    "ab" * 200 + "!" * 257,
    "\u00e9" * 100 + "\U0001f600" * 100,
    "\r\n" * 50 + "x" + " \t" * 50,
]
ALPHABET = list("aabcdestrlmvASTRLDMV''''     \n\n\r\t012.,!?-/") + [
    "'s", "'LL", "'ve", "\u017f", "\u00e9", "e\u0301", "\u0301", "\u4e2d", "\u3042", "\ud55c", "\u0627", "\u05d0", "\U0001f600", "\u200d", "\ufe0f", "\u00a0",
    "\u2003", "\u3000", "\u0085", "\u2028", "\u180e", "\u00b2", "\u0664", "\u01c5", "\u02b0", "\u0903", "\ufeff", "\x00", "<|im_end|>", "<|eot_id|>", "<mask>", "word",
    "\U00010d40", "\u1c89", "The ", " answer", " is", "John has ",
]
# Bytes that are not UTF-8, for libraries that take bytes.
BROKEN = ["ff", "61ff62", "c3", "c328", "e28228", "eda080edb080", "f4908080", "c0af", "f09f98", "68656c6c6f20f09f9820776f726c64", "80808080", "20ff20"]


def random_texts(count):
    rng = random.Random(20)
    return ["".join(rng.choice(ALPHABET) for _ in range(rng.randint(1, 40))) for _ in range(count)]


def byte_level(pattern, normalizer=None, special=(), behavior="isolated", invert=False, before=()):
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    steps = list(before) + [pre_tokenizers.Split(Regex(pattern), behavior, invert), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def train(tokenizer, texts, special, vocab_size=1000):
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=list(special), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save(tokenizer, folder, end_of_text, change=None):
    """With tokenizer_config.json; `change` edits the JSON to forms that older or other files have."""
    path = GOLDEN / folder
    path.mkdir(exist_ok=True)
    data = json.loads(tokenizer.to_str())
    if change:
        change(data)
    (path / "tokenizer.json").write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end_of_text}
    (path / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    return Tokenizer.from_file(str(path / "tokenizer.json"))


def merges_as_strings(data):
    data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]


def ignore_merges(data):
    # A token that no merge makes: only ignore_merges finds it.
    data["model"]["ignore_merges"] = True
    vocab = data["model"]["vocab"]
    vocab["Ġzebra"] = max(max(vocab.values()), max(t["id"] for t in data["added_tokens"])) + 1


def hugging_face_tokenizers(texts):
    llama3 = save(train(byte_level(LLAMA3), texts, LLAMA3_SPECIAL), "llama3", "<|end_of_text|>", ignore_merges)
    qwen = save(train(byte_level(QWEN, normalizers.NFC()), texts, QWEN_SPECIAL), "qwen", "<|endoftext|>", merges_as_strings)

    # GPT-2's own pre-tokenizer with a prefix space, and added tokens of every kind.
    gpt2 = Tokenizer(models.BPE())
    gpt2.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    gpt2.decoder = decoders.ByteLevel()
    gpt2.normalizer = normalizers.NFC()
    train(gpt2, texts, ["<|endoftext|>"], 600)
    gpt2.add_special_tokens([AddedToken("<mask>", lstrip=True), AddedToken("<pad>", rstrip=True, lstrip=True)])
    gpt2.add_tokens([AddedToken("word", single_word=True), AddedToken("\u00e9t\u00e9", normalized=True), AddedToken("sword", normalized=False), AddedToken("  ", normalized=False)])
    added = save(gpt2, "added", "<|endoftext|>")

    # Several steps, patterns without a matcher of their own, behaviors other than isolation.
    steps = [
        pre_tokenizers.Split(Regex(r"\p{N}{1,2}"), "isolated"),
        pre_tokenizers.Split(Regex(r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), "isolated"),
        pre_tokenizers.Split("-", "merged_with_next"),
        pre_tokenizers.Split(Regex(r"[.,!?]"), "merged_with_previous"),
        pre_tokenizers.Digits(individual_digits=True),
    ]
    steps_pattern = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+|\w\W"
    steps_tokenizer = save(train(byte_level(steps_pattern, before=steps), texts, ["<|endoftext|>"], 700), "steps", "<|endoftext|>")
    contiguous = [pre_tokenizers.Split(Regex(r"\s"), "contiguous"), pre_tokenizers.Split(Regex(r"[aeiou]"), "removed")]
    removed = save(train(byte_level(r"\S{1,4}|\s", before=contiguous, behavior="isolated"), texts, [], 500), "removed", "e")
    o200k_pattern = "|".join([
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""",
        r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
        r"""\s*[\r\n]+""",
        r"""\s+(?!\S)""",
        r"""\s+""",
    ])
    o200k = save(train(byte_level(o200k_pattern, behavior="removed", invert=True), texts, ["<|endoftext|>"], 700), "o200k", "<|endoftext|>")
    return {"llama3": llama3, "qwen": qwen, "added": added, "steps": steps_tokenizer, "removed": removed, "o200k": o200k}


def sentencepiece_models(texts):
    corpus = GOLDEN / "corpus.tmp"
    corpus.write_text("\n".join(texts))
    made = {}
    for name, options in {
        "sp_bpe": {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False},
        "sp_unigram": {"model_type": "unigram", "byte_fallback": False, "normalization_rule_name": "nmt_nfkc"},
    }.items():
        (GOLDEN / name).mkdir(exist_ok=True)
        sentencepiece.SentencePieceTrainer.train(
            input=str(corpus), model_prefix=str(GOLDEN / name / "tokenizer"), vocab_size=1000, hard_vocab_limit=False, minloglevel=2,
            user_defined_symbols=["<mask>"], control_symbols=["<ctrl>"], **options)
        (GOLDEN / name / "tokenizer.vocab").unlink()
        made[name] = sentencepiece.SentencePieceProcessor(model_file=str(GOLDEN / name / "tokenizer.model"))
    corpus.unlink()
    return made


def tiktoken_encodings():
    ranks = load_tiktoken_bpe(str(GOLDEN / "cl100k_base.tiktoken"))
    published = {}
    source = openai_public.load_tiktoken_bpe
    openai_public.load_tiktoken_bpe = lambda *args, **kwargs: ranks
    published["cl100k_base"] = tiktoken.Encoding(**openai_public.cl100k_base())
    openai_public.load_tiktoken_bpe = source
    gpt2 = "examples/tokenizers/gpt2/"
    ranks = data_gym_to_mergeable_bpe_ranks(vocab_bpe_file=gpt2 + "merges.txt", encoder_json_file=gpt2 + "vocab.json")
    published["gpt2"] = tiktoken.Encoding("gpt2", pat_str=openai_public.r50k_pat_str, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256})
    return published


# The published templates of the instruct models (Qwen's ChatML without a default system message; Llama-3; Mistral 7B v0.2).
CHATML = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
LLAMA3_CHAT = "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
MISTRAL_CHAT = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('After the optional system message, conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- if message["role"] == "user" %}
        {%- if loop.first and system_message is defined %}
            {{- " [INST] " + system_message + "\\n\\n" + message["content"] + " [/INST]" }}
        {%- else %}
            {{- " [INST] " + message["content"] + " [/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"] + eos_token}}
    {%- endif %}
{%- endfor %}"""


def chats(tokenizers):
    conversations = [
        [("user", "Hi")],
        [("user", "What is 2 + 2?"), ("assistant", "It is 4.")],
        [("system", "Be brief."), ("user", "Who?"), ("assistant", "Me."), ("user", "And?"), ("assistant", "You.")],
        [("user", "  spaces \n\n"), ("assistant", "\u00a0\u3000 nbsp \x1f\n"), ("user", "\ttab")],
        [("user", "multi\nline\n\nquestion"), ("assistant", "1.\n2.\n")],
        [("user", ""), ("assistant", ""), ("user", "x")],
        [("system", "\u4f60\u597d"), ("user", "\U0001f600"), ("assistant", "e\u0301")],
        [("user", "<|im_end|> <|eot_id|> </s> [INST]"), ("assistant", "no")],
    ]
    result = []
    for name, folder, template, special in [
        ("chatml", "qwen", CHATML, {}),
        ("llama-3", "llama3", LLAMA3_CHAT, {"bos_token": "<|begin_of_text|>"}),
        ("mistral", None, MISTRAL_CHAT, {"bos_token": "<s>", "eos_token": "</s>"}),
    ]:
        # Mistral's template is only rendered: its text does not depend on the vocabulary.
        inner = tokenizers[folder or "llama3"]
        fast = PreTrainedTokenizerFast(tokenizer_object=inner, chat_template=template, **special)
        for conversation in conversations:
            messages = [{"role": role, "content": content} for role, content in conversation]
            for reply in (False, True):
                text = fast.apply_chat_template(messages, tokenize=False, add_generation_prompt=reply)
                row = {"template": name, "messages": messages, "reply": reply, "text": text}
                if folder:
                    row["tokenizer"] = folder
                    row["ids"] = fast.apply_chat_template(messages, tokenize=True, add_generation_prompt=reply, return_dict=False)
                result.append(row)
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", required=True)
    records = [json.loads(line) for line in open(parser.parse_args().text)]
    texts = [part for record in records[:2000] for part in (record["question"], record["answer"])]
    fast = hugging_face_tokenizers(texts)
    pieces = sentencepiece_models(texts)
    published = tiktoken_encodings()
    samples = NASTY + [text for text in texts[:6]] + ["a zebra in a zoo"] + random_texts(150)
    ids = {name: [t.encode(s, add_special_tokens=False).ids for s in samples] for name, t in fast.items()}
    for t in fast.values():
        t.encode_special_tokens = True
    ordinary = {name: [t.encode(s, add_special_tokens=False).ids for s in samples] for name, t in fast.items()}
    for t in fast.values():
        t.encode_special_tokens = False
    for name, t in published.items():
        ids[name] = [t.encode_ordinary(s) for s in samples]
    decoded = {}
    for name, t in pieces.items():
        ids[name] = [t.encode(s) for s in samples]
        decoded[name] = [t.decode(i) for i in ids[name]]
    runs = []
    for unit, count in [("a", 1_000_000), (" ", 100_000), ("\n", 100_000), ("7", 100_000), ("ab", 50_000), ("\u00e9", 50_000)]:
        for name in ("llama3", "qwen"):
            found = fast[name].encode(unit * count, add_special_tokens=False).ids
            runs.append({"tokenizer": name, "unit": unit, "count": count, "ids": len(found), "first": found[:5], "last": found[-5:]})
    broken = {name: [t.encode(bytes.fromhex(h)) for h in BROKEN] for name, t in pieces.items()}
    golden = {"texts": samples, "ids": ids, "ordinary": ordinary, "decoded": decoded, "runs": runs, "broken": BROKEN, "broken_ids": broken}
    (GOLDEN / "tokenizer_golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    (GOLDEN / "chat_template_golden.json").write_text(json.dumps(chats(fast), separators=(",", ":")) + "\n")


main()
