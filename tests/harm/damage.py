"""Damage to a file's bytes: functions of them and of a random generator."""

import gzip
import io
import re
import struct
import zipfile

import torch

NUMBERS = [b"9" * 400, b"1e999", b"-1", b"nan", b"0", b"1_0", "٣".encode(), b"999999999"]
CHARACTERS = ["\0", "\x1b", "\x85", "\u00a0", "\u2028", "\ufeff", "\U0001f600", "\r", "\v"]


def _at(change):
    """Damage at a random place: ``change(head, tail, rng)``."""

    def damage(data, rng):
        place = rng.randrange(len(data))
        return change(data[:place], data[place:], rng)

    return damage


def _of_lines(change):
    """Damage to the lines of a text: ``change(lines, place, rng)``."""

    def damage(data, rng):
        lines = data.splitlines(keepends=True)
        change(lines, rng.randrange(len(lines)), rng)
        return b"".join(lines)

    return damage


def _drop_field(lines, place, rng):
    fields = re.findall(rb"\S+\s*", lines[place])
    del fields[rng.randrange(len(fields))]
    lines[place] = b"".join(fields)


def _number(data, rng):
    """Another number for one of the text."""
    found = list(re.finditer(rb"-?\d+(?:\.\d+)?", data))
    if not found:
        return data + rng.choice(NUMBERS)
    match = rng.choice(found)
    return data[: match.start()] + rng.choice(NUMBERS) + data[match.end() :]


def saved(state):
    """The bytes of a checkpoint."""
    out = io.BytesIO()
    torch.save(state, out)
    return out.getvalue()


def _member(data, rng):
    """One file of the zip is damaged, and its checksum fits."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    place = rng.randrange(len(members))
    name, content = members[place]
    members[place] = name, rng.choice(ANY)(content, rng) if content else b"x"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for member in members:
            archive.writestr(*member)
    return out.getvalue()


ANY = [
    lambda data, rng: b"",
    lambda data, rng: b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
    lambda data, rng: gzip.compress(data),
    _at(lambda head, tail, rng: head),
    _at(lambda head, tail, rng: head + bytes([tail[0] ^ (1 << rng.randrange(8))]) + tail[1:]),
    _at(lambda head, tail, rng: head + bytes(min(9, len(tail))) + tail[9:]),
    _at(lambda head, tail, rng: head + tail[rng.randrange(1, 99) :]),
    _at(lambda head, tail, rng: head + tail[: rng.randrange(1, 99)] * 3 + tail),
]
BINARY = [
    *ANY,
    _at(lambda head, tail, rng: head + struct.pack("<q", rng.choice([-1, 0, 2**40])) + tail[8:]),
]
CHECKPOINT = [*BINARY, _member, lambda data, rng: saved([5])]
TEXT = [
    *ANY,
    _of_lines(lambda lines, place, rng: lines.pop(place)),
    _of_lines(lambda lines, place, rng: lines.insert(place, lines[place])),
    _of_lines(_drop_field),
    _number,
    _at(lambda head, tail, rng: head + rng.choice(CHARACTERS).encode() + tail),
    _at(lambda head, tail, rng: head + b"(" * 10**5 + b")" * 10**5 + tail),
    _at(lambda head, tail, rng: head + b"a" * 2**21 + tail),
    lambda data, rng: data.decode("utf-8", "replace").encode("utf-16"),
    lambda data, rng: b"\xff\xfe" + data,
    lambda data, rng: data.replace(b"\n", rng.choice([b"\r\n", b"\r", b" ", b"\n\n"])),
]


def kinds_for(name):
    """The kinds of damage that suit a file."""
    if name.endswith(".pt"):
        return CHECKPOINT
    return BINARY if name.endswith((".bin", ".idx", ".gz")) else TEXT
