"""Texts and tokenizer.json variants that both the golden files and the oracle comparison use.

Everything comes from a seed; nothing here needs a package outside the standard library."""

import copy
import random
import unicodedata

QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def added_token(token_id, content, special=True):
    return {
        "id": token_id,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": special,
    }


def byte_level(use_regex):
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def variants(base):
    """Name -> (the file's object, mode): what tokenizer.json may contain, made from one file."""
    out = {"flashlet": (base, "parse")}

    def make(name, change, mode="parse"):
        variant = copy.deepcopy(base)
        change(variant)
        out[name] = (variant, mode)

    def qwen(d):
        d["normalizer"] = {"type": "NFC"}
        d["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = QWEN_PATTERN
        d["post_processor"] = byte_level(False)
        d["model"].update(continuing_subword_prefix="", end_of_word_suffix="")
        d["model"]["merges"] = [" ".join(pair) for pair in d["model"]["merges"]]

    def sequence_nfc(d):
        d["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFC"}]}

    def ignore_merges(d):
        d["model"]["ignore_merges"] = True

    def gpt2(d):
        d["pre_tokenizer"] = byte_level(True)

    def whole(d):
        d["pre_tokenizer"] = byte_level(False)

    def whole_ignore_merges(d):
        whole(d)
        ignore_merges(d)

    def overlapping(d):
        qwen(d)
        contents = [
            "<a",
            "<ab>",
            "ab>c",
            "x\u00e9",
            "e\u0301",
            " <sp> ",
            "\n\n\n",
            "\U0001f600",
            "<|i",
            "m_start",
        ]
        for i, content in enumerate(contents):
            d["added_tokens"].append(added_token(8192 + i, content, special=i % 2 == 0))

    def unreachable_word(d):  # a token of the model that its own merges no longer make
        ignore_merges(d)
        d["model"]["merges"] = d["model"]["merges"][:4000]

    make("qwen", qwen)
    make("sequence_nfc", sequence_nfc)
    make("ignore_merges", ignore_merges)
    make("gpt2", gpt2)
    make("whole", whole)
    make("whole_ignore_merges", whole_ignore_merges)
    make("overlapping", overlapping)
    make("unreachable_word", unreachable_word)
    make("as_text", lambda d: None, mode="text")
    make("qwen_as_text", qwen, mode="text")
    return out


def code_points_by_category():
    by_category = {}
    for code_point in range(0x110000):
        if 0xD800 <= code_point < 0xE000:
            continue
        by_category.setdefault(unicodedata.category(chr(code_point)), []).append(code_point)
    return by_category


def edge_texts():
    return short_texts() + later_unicode_texts()


def short_texts():
    return [
        "",
        " ",
        "  ",
        "\n",
        "\r\n",
        "\n\n",
        " \n ",
        "\t\t x",
        "a\u00a0b",
        "a\u180eb",
        "\u180e",
        "x \u2003 y",
        "a\u0085b",
        "\u2028\u2029",
        "a\x00b",
        "\x1c\x1d\x1e\x1f",
        "\ufeffx",
        "it's IT'S it'\u017f 'S'T'RE'VE'M'LL'D 'ss 'st 'lL\u212a",
        "don't 'tis rock'n'roll",
        "1234567 12.5e-3 \u0661\u0662\u00b2\u2167",
        "a1b2",
        "foo_bar(baz);  // x",
        "...!!!\n\n",
        "Hello   world  \n\n\n  next",
        "  leading",
        "trailing  ",
        "\r\r\n\n\r",
        "a\r\nb\rc\n",
        "\u4f60\u597d\uff0c\u4e16\u754c\u3002",
        "\u65e5\u672c\u8a9e\u306e\u30c6\u30b9\u30c8",
        "\u0440\u0443\u0441\u0441\u043a\u0438\u0439",
        "\U0001f9ea\U0001f468\u200d\U0001f469",
        "\U0001f1e9\U0001f1ea",
        "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
        "\u0939\u093f\u0928\u094d",
    ]
    texts += [
        "e\u0301",
        "\u00e9",
        "cafe\u0301 caf\u00e9",
        "\u212b \u2126 \u00c5",
        "\u1e9b\u0323",
        "q\u0307\u0323",
        "q\u0323\u0307",
        "\u0301a",
        "\u1112\u1161\u11ab",
        "\uac00\u11a8",
        "\u0958",
        "\u0344",
        "\u2adc",
        "\uf900\ufa30",
        "\u3099\u304b\u3099",
        "\u0bc6\u0bbe",
        "a\u0345\u0301",
        "\U00011935\U00011930",
        "q\u0301\U00010f48\u0323",
        "q\u0315\u08d3\u0300",
        "\U000105d2\u0307",
        "\u304b\u3099\u304b",
        "\u1100\u1161\u11a8\u11a8",
        "x\u0334\u0338",
    ]
    texts += [
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        "<|im_start|",
        "<|im_start||im_start|>",
        "<<think>>",
        "<think><think>",
        "</think >",
        "<|endoftext|><|endoftext|>",
        "x<tool_call>y</tool_call>z",
        "<tool_call",
        "<tool_",
        "<|im_end|> \n",
        " <|im_end|>",
        "\n<|im_end|>\n",
        "<THINK>",
        "<|im_start|>e\u0301",
        "e<|im_end|>\u0301",
        "<ab>c<ab<a<ab>",
        "<a<ab>c",
        "e\u0301<sp> \u00e9 <sp> <sp>",
        "\n\n\n\n\n",
        "<|im_start|>im_start<|i",
        "x\u00e9 xe\u0301 ",
        "\U0001f600\U0001f601",
    ]


# Later than Unicode 14.0 and 15.0: letters, marks, numbers, white space look-alikes.
def later_unicode_texts():
    return [
        "a\U00031350b",
        "\u1c89x",
        "1\U0001e4f01",
        "x\u0cf3y",
        "\U00011f50\U00011f02\U00011f00",
        "\U00010ec2 \U0002ebf0",
        "\U000105c0'\U000116d0",
        "\ua7cb\u0897",
    ]


def run_texts():
    """(unit, count): long runs, on which a quadratic method would take minutes."""
    return [
        ("a", 100000),
        (" ", 100000),
        ("\n", 30000),
        ("ab", 30000),
        ("\u4f60", 20000),
        ("!", 50000),
        (" \n", 20000),
        ("e\u0301", 20000),
        ("0", 20000),
        ("the", 20000),
        (" x", 20000),
        ("\u0301", 20000),
        ("<", 30000),
        ("<think>", 2000),
        ("'", 20000),
    ]


def random_unicode(rng, by_category):
    kind = rng.randrange(5)
    length = rng.randint(1, 24)
    if kind == 0:  # every category alike
        categories = sorted(by_category)
        return "".join(chr(rng.choice(by_category[rng.choice(categories)])) for _ in range(length))
    if kind == 1:  # marks on letters
        base = [0x61, 0x65, 0x41, 0x3B1, 0x1100, 0x1161, 0x11A8, 0xAC00, 0x304B, 0x915, 0x2203]
        pool = by_category["Mn"] + by_category["Mc"]
        return "".join(chr(rng.choice(rng.choice([base, pool]))) for _ in range(length))
    if kind == 2:  # what the split pattern looks at
        return "".join(
            rng.choice("aZ'sStTrRvVeEmMlLdD \n\r\t19.,-_<|>\u00e9\u4f60\u0301\u00a0\u3000")
            for _ in range(length)
        )
    if kind == 3:  # composed characters and their parts
        text = "".join(chr(rng.randrange(0xC0, 0x600)) for _ in range(length))
        return unicodedata.normalize(rng.choice(["NFC", "NFD"]), text)
    parts = [
        "<|im_start|>",
        "<|im_end|>",
        "<think>",
        "</think>",
        "<tool_call>",
        "<|",
        "|>",
        "think",
        "<a",
        "<ab>",
        "ab>c",
        " <sp> ",
        "\n",
        " ",
        "x",
        "e\u0301",
        "\U0001f600",
        "im_start",
    ]
    return "".join(rng.choice(parts) for _ in range(length))


def random_bytes(rng):
    kind = rng.randrange(3)
    length = rng.randint(1, 24)
    if kind == 0:
        return bytes(rng.randrange(256) for _ in range(length))
    if kind == 1:  # nearly UTF-8
        text = bytearray("a\u00e9\u4f60\U0001f9ea z".encode() * 2)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text))
            if rng.random() < 0.5:
                del text[at]
            else:
                text[at] = rng.randrange(256)
        return bytes(text)
    edges = [
        0x00,
        0x41,
        0x7F,
        0x80,
        0x8F,
        0x90,
        0x9F,
        0xA0,
        0xBF,
        0xC0,
        0xC1,
        0xC2,
        0xDF,
        0xE0,
        0xE1,
        0xED,
        0xEF,
        0xF0,
        0xF1,
        0xF4,
        0xF5,
        0xFF,
    ]
    return bytes(rng.choice(edges) for _ in range(length))


def new_rng(seed):
    return random.Random(seed)
