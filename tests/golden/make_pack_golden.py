#!/usr/bin/env python3
"""Writes tests/golden/pack_source.json: small tensors in every number format that checkpoints use,
with the values that they stand for.

Written from the format documents with nothing but the standard library, so that the packer's codecs
are checked against something that is not the packer. Each case is one weight with its partner
tensors, as {suffix: {dtype, shape, hex}}, and `expected`, rows of float64 values; large cases give
[row, col, value] samples instead. Usage: make_pack_golden.py OUTPUT
"""

import json
import struct
import sys

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def e2m1(code):
    return -E2M1[code & 7] if code & 8 else E2M1[code & 7]


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    assert (exponent, mantissa) != (15, 7), "NaN"
    value = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return -value if code & 0x80 else value


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def bf16_bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0] >> 16


def tensor(dtype, shape, data):
    return {"dtype": dtype, "shape": shape, "hex": bytes(data).hex()}


def f32_tensor(shape, values):
    return tensor("F32", shape, b"".join(struct.pack("<f", v) for v in values))


def bf16_tensor(shape, bits):
    return tensor("BF16", shape, b"".join(struct.pack("<H", b) for b in bits))


def pack_nibbles(codes):
    """Even element in the low nibble, odd in the high one: ModelOpt and compressed-tensors."""
    return [codes[i] | codes[i + 1] << 4 for i in range(0, len(codes), 2)]


class Stream:
    """A linear congruential generator (Knuth's MMIX constants): reproducible in any language."""

    def __init__(self, seed):
        self.state = seed

    def below(self, bound):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % bound


def nvfp4_values(codes, scales, multiplier, cols):
    rows = len(codes) // cols
    values = [e2m1(code) * e4m3(scales[i // 16]) * multiplier for i, code in enumerate(codes)]
    return [values[r * cols : (r + 1) * cols] for r in range(rows)]


def nvfp4_case(name, codes, scales, cols, divisor, dialect):
    rows = len(codes) // cols
    multiplier = f32(1.0 / divisor)
    tensors = {}
    if dialect == "modelopt":
        tensors["weight"] = tensor("U8", [rows, cols // 2], pack_nibbles(codes))
        tensors["weight_scale"] = tensor("F8_E4M3", [rows, cols // 16], scales)
        tensors["weight_scale_2"] = f32_tensor([], [multiplier])
    elif dialect == "compressed-tensors":
        tensors["weight_packed"] = tensor("U8", [rows, cols // 2], pack_nibbles(codes))
        tensors["weight_scale"] = tensor("F8_E4M3", [rows, cols // 16], scales)
        tensors["weight_global_scale"] = f32_tensor([1], [divisor])
    else:
        fixed, exceptions = csf(scales, rows, cols // 16)
        tensors["weight"] = tensor("U8", [rows, cols // 2], pack_nibbles(codes))
        tensors["weight_scale.nvfp4_csf_fixed"] = tensor(
            "U8", [rows // 16, 16 * (1 + cols // 32)], fixed
        )
        tensors["weight_scale.nvfp4_csf_exceptions"] = tensor(
            "U32", [len(exceptions)], b"".join(struct.pack("<I", e) for e in exceptions)
        )
        tensors["weight_scale_2"] = f32_tensor([], [multiplier])
    return {
        "name": name,
        "rows": rows,
        "cols": cols,
        "tensors": tensors,
        "expected": nvfp4_values(codes, scales, multiplier, cols),
    }


def csf(scales, rows, cols):
    """Per slab of 16 rows: 16 bases, then 4-bit offsets; what these miss is an exception."""
    fixed, exceptions = [], []
    for slab in range(0, rows, 16):
        bases, offsets = [], []
        for r in range(slab, slab + 16):
            row = scales[r * cols : (r + 1) * cols]
            base = max(range(241), key=lambda b: (sum(b <= s < b + 16 for s in row), -b))
            bases.append(base)
            for c, s in enumerate(row):
                inside = base <= s < base + 16
                offsets.append(s - base if inside else 0)
                if not inside:
                    exceptions.append(r * cols + c | s << 24)
        fixed += bases + pack_nibbles(offsets)
    return fixed, exceptions


def distinct_codes():
    """One block of 16 different codes: any permutation of nibbles or bytes shows."""
    codes = [3, 14, 7, 0, 9, 12, 1, 6, 15, 2, 11, 4, 8, 13, 5, 10]
    dialects = ("modelopt", "compressed-tensors")
    return [nvfp4_case("nvfp4 distinct " + d, codes, [0x3A], 16, 8.0, d) for d in dialects]


def one_hot():
    """16 rows; row r has the value 6 at column r alone and a scale of its own."""
    codes = [7 if r == c else 0 for r in range(16) for c in range(32)]
    scales = [s for r in range(16) for s in (0x20 + 3 * r, 0x70 - r)]
    dialects = ("modelopt", "csf")
    return [nvfp4_case("nvfp4 one-hot " + d, codes, scales, 32, 448.0, d) for d in dialects]


def random_nvfp4():
    stream = Stream(7)
    codes = [stream.below(16) for _ in range(32 * 64)]
    scales = []
    for _ in range(32 * 4):
        scales.append(stream.below(0x7F) if stream.below(8) == 0 else 0x50 + stream.below(14))
    dialects = ("modelopt", "csf")
    return [nvfp4_case("nvfp4 random " + d, codes, scales, 64, 3584.0, d) for d in dialects]


def fp8_tensor():
    """All 254 finite codes, once each."""
    codes = [c for c in range(256) if c & 0x7F != 0x7F]
    return {
        "name": "fp8 all codes",
        "rows": 2,
        "cols": 127,
        "tensors": {
            "weight": tensor("F8_E4M3", [2, 127], codes),
            "weight_scale": f32_tensor([1], [1.0]),
        },
        "expected": [[e4m3(c) for c in codes[:127]], [e4m3(c) for c in codes[127:]]],
    }


def fp8_blocks(scale_dtype):
    rows, cols = 130, 259
    stream = Stream(11)
    codes = [stream.below(0x7F) | stream.below(2) << 7 for _ in range(rows * cols)]
    bits = [bf16_bits(0.01 * (1 + i)) for i in range(2 * 3)]
    scales = [struct.unpack("<f", struct.pack("<I", b << 16))[0] for b in bits]
    inverse = bf16_tensor([2, 3], bits)
    if scale_dtype == "F32":
        scales = [f32(0.013 * (1 + i)) for i in range(6)]
        inverse = f32_tensor([2, 3], scales)
    samples = []
    for r in (0, 1, 64, 127, 128, 129):
        for c in (0, 5, 127, 128, 200, 255, 256, 258):
            samples.append([r, c, e4m3(codes[r * cols + c]) * scales[r // 128 * 3 + c // 128]])
    return {
        "name": "fp8 blocks " + scale_dtype,
        "rows": rows,
        "cols": cols,
        "tensors": {
            "weight": tensor("F8_E4M3", [rows, cols], codes),
            "weight_scale_inv": inverse,
        },
        "samples": samples,
    }


def mxfp8():
    stream = Stream(13)
    rows, cols = 3, 64
    codes = [stream.below(0x7F) | stream.below(2) << 7 for _ in range(rows * cols)]
    scales = [110, 127, 140, 9, 200, 121]
    values = [e4m3(c) * 2.0 ** (scales[i // 32] - 127) for i, c in enumerate(codes)]
    return {
        "name": "mxfp8",
        "rows": rows,
        "cols": cols,
        "tensors": {
            "weight": tensor("F8_E4M3", [rows, cols], codes),
            "weight_scale": tensor("U8", [rows, cols // 32], scales),
        },
        "expected": [values[r * cols : (r + 1) * cols] for r in range(rows)],
    }


def main():
    cases = distinct_codes() + one_hot() + random_nvfp4()
    cases += [fp8_tensor(), fp8_blocks("BF16"), fp8_blocks("F32"), mxfp8()]
    with open(sys.argv[1], "w") as out:
        out.write('{"cases": [\n')
        out.write(",\n".join(json.dumps(case, separators=(",", ":")) for case in cases))
        out.write("\n]}\n")


if __name__ == "__main__":
    main()
