#!/usr/bin/env python3
"""Turns recorded routes (routes-<domain>.npz) into trace files that `hearth replay` reads.

A .npz holds `routes`, uint16 [tokens, layers, ranks], best rank first, and `segment`: a text begins
every so many tokens. With --layers, layer l of the trace is column l mod C of the file's C columns,
(l div C) segments later, so that the copies are not in step. Several files are mixed in turns of
--turn tokens. The format of a trace: cache/policy/TRACE.md. Standard library only.

    tools/routes_to_trace.py --layers 48 --out en.trace routes-en.npz
    tools/routes_to_trace.py --turn 4096 --out mix.trace routes-*.npz
"""

import argparse
import ast
import array
import struct
import sys
import zipfile

MAGIC = b"HRTROUTE"
VERSION = 1


def _crc32c_table():
    table = []
    for i in range(256):
        crc = i
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


def crc32c(data):
    """CRC-32C of bytes."""
    table = _crc32c_table()
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def read_array(archive, name):
    """A member of a .npz as (dtype, shape, bytes)."""
    data = archive.read(name + ".npy")
    if data[:6] != b"\x93NUMPY":
        raise ValueError(f"{name}: not a NumPy array")
    wide = data[6] >= 2
    length, = struct.unpack_from("<I" if wide else "<H", data, 8)
    begin = (12 if wide else 10) + length
    header = ast.literal_eval(data[begin - length:begin].decode("latin1"))
    if header["fortran_order"]:
        raise ValueError(f"{name}: found column-major order, expected row-major")
    return header["descr"], header["shape"], data[begin:]


class Routes:
    """The routes of one .npz: `of(token, column)` is the bytes of its ranks."""

    def __init__(self, path):
        with zipfile.ZipFile(path) as archive:
            dtype, shape, data = read_array(archive, "routes")
            segment_type, _, segment = read_array(archive, "segment")
        if dtype != "<u2" or len(shape) != 3:
            raise ValueError(f"{path}: routes: found {dtype} {shape}, expected <u2 of 3 dimensions")
        if segment_type != "<i8":
            raise ValueError(f"{path}: segment: found {segment_type}, expected <i8")
        self.path = path
        self.tokens, self.columns, self.ranks = shape
        self.segment, = struct.unpack("<q", segment[:8])
        self.data = data
        if not 0 < self.segment <= self.tokens:
            raise ValueError(f"{path}: segment: found {self.segment} of {self.tokens} tokens")

    def token(self, token, layers):
        """The bytes of one token's routes in `layers` layers."""
        row = self.columns * self.ranks * 2
        if layers == self.columns:
            return self.data[token * row:(token + 1) * row]
        parts = []
        for copy in range((layers + self.columns - 1) // self.columns):
            begin = (token + copy * self.segment) % self.tokens * row
            width = min(self.columns, layers - copy * self.columns) * self.ranks * 2
            parts.append(self.data[begin:begin + width])
        return b"".join(parts)


def turns(sources, turn):
    """(source, first token, token count) of a mix in which the sources take turns."""
    done = [0] * len(sources)
    while any(d < s.tokens for d, s in zip(done, sources)):
        for i, source in enumerate(sources):
            count = min(turn, source.tokens - done[i])
            if count > 0:
                yield source, done[i], count
                done[i] += count


def text_begins(source, first, count):
    """Where texts begin in a run of tokens, from its start; a run begins one of its own."""
    inside = range((first // source.segment + 1) * source.segment, first + count, source.segment)
    return [0] + [token - first for token in inside]


def build_trace(sources, layers, experts, turn):
    ranks = sources[0].ranks
    for source in sources:
        if source.ranks != ranks or source.columns != sources[0].columns:
            raise ValueError(f"{source.path}: found {source.columns} layers x {source.ranks} ranks,"
                             f" expected {sources[0].columns} x {ranks} as in the first file")
    begins, routes, tokens = [], [], 0
    for source, first, count in turns(sources, turn or sources[0].tokens):
        begins.extend(tokens + begin for begin in text_begins(source, first, count))
        routes.extend(source.token(first + i, layers) for i in range(count))
        tokens += count
    body = b"".join(routes)
    highest = max(array.array("H", body)) if sys.byteorder == "little" else 0
    if highest >= experts:
        raise ValueError(f"found expert {highest}, expected experts below {experts}")
    header = MAGIC + struct.pack("<IIIIIIQQ", VERSION, 0, layers, experts, ranks, 0, tokens,
                                 len(begins)) + bytes(64)
    trace = header + struct.pack(f"<{len(begins)}Q", *begins) + body
    return trace + struct.pack("<I", crc32c(trace)), tokens, len(begins)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("npz", nargs="+", help="routes-<domain>.npz")
    parser.add_argument("--out", required=True, help="the trace to write")
    parser.add_argument("--layers", type=int, default=0, help="0: as many as the files have")
    parser.add_argument("--experts", type=int, default=512, help="experts per layer")
    parser.add_argument("--turn", type=int, default=0,
                        help="tokens that each file gives in turn; 0: one file after the other")
    options = parser.parse_args()
    try:
        sources = [Routes(path) for path in options.npz]
        layers = options.layers or sources[0].columns
        trace, tokens, texts = build_trace(sources, layers, options.experts, options.turn)
    except (ValueError, KeyError, OSError, zipfile.BadZipFile) as error:
        print(f"routes_to_trace.py: {error}", file=sys.stderr)
        return 2
    with open(options.out, "wb") as out:
        out.write(trace)
    print(f"{options.out}: {tokens} tokens of {texts} texts, {layers} layers, {len(trace)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
