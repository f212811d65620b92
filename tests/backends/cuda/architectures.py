#!/usr/bin/env python3
"""Fails unless a program's CUDA kernels are there for exactly these
architectures, as CMAKE_CUDA_ARCHITECTURES has them.

    architectures.py PROGRAM 75-real 80-real ... 120
"""
import pathlib
import struct
import sys

# A fat binary: its header, then one entry for each piece of code.
MAGIC = 0xBA55ED50
PTX, ELF = 1, 2


def code_in(data):
    """Yields ("ptx" or "elf", architecture) of each entry."""
    at = data.find(struct.pack("<I", MAGIC))
    while at >= 0:
        _, _, header, size = struct.unpack_from("<IHHQ", data, at)
        entry, end = at + header, at + header + size
        if header != 16 or end > len(data):
            at = data.find(struct.pack("<I", MAGIC), at + 4)
            continue
        while entry < end:
            kind, _, length, payload = struct.unpack_from("<HHIQ", data, entry)
            architecture, = struct.unpack_from("<I", data, entry + 28)
            if kind in (PTX, ELF):
                yield {PTX: "ptx", ELF: "elf"}[kind], architecture
            entry += length + payload
        at = data.find(struct.pack("<I", MAGIC), end)


def wanted(names):
    for name in names:
        number = int(name.split("-")[0])
        if not name.endswith("-virtual"):
            yield "elf", number
        if not name.endswith("-real"):
            yield "ptx", number


def main(program, *names):
    found = set(code_in(pathlib.Path(program).read_bytes()))
    print("found:", *sorted(f"{kind}:{number}" for kind, number in found))
    missing = set(wanted(names)) - found
    extra = found - set(wanted(names))
    if missing or extra:
        print("missing:", *sorted(missing), "not asked for:", *sorted(extra))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
