"""Damage to a file: recipes that can be printed and repeated, and hypothesis strategies that draw them.

A recipe is a list of steps, a step a list of a name and plain numbers or strings; ``mutilate(data, recipe)``
applies it to bytes. Places count modulo the file's length. A recipe of one step in ``PLACES`` replaces the file
itself, by a folder for example; ``place`` does that.
"""

import codecs
import gzip
import io
import os
import pickle
import re
import struct
import zipfile

import torch
from hypothesis import strategies as st

NUMBERS = [b"99999999999999999999", b"9" * 400, b"9" * 5000, b"1e999", b"-1", b"nan", b"inf", b"0"]
NUMBERS += [b"999999999", b"1_0", "٣".encode(), b"0x10", b"+1", b"1e-400"]
CHARACTERS = "\0\x07\x1b\x85\u00a0\u2028\u202e\ufeff\ufffd\U0001f600\r\t\v"
ENCODINGS = ["utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "utf-7", "cp037", "shift-jis"]
MARKS = [codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE]
FOREIGN = {
    "png": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
    "elf": b"\x7fELF" + bytes(200),
    "zip": b"PK\x05\x06" + bytes(18),
    "html": b"<!DOCTYPE html>\n<html><body>404 Not Found</body></html>\n",
    "random": bytes((i * 197 + (i >> 3) * 31) % 256 for i in range(2000)),
    "spaces": b" \n" * 50,
    "pickle": b"\x80\x02}q\x00.",
    "json": b'{"a": [1, 2]}\n',
    "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12345\n",
}
PLACES = ("folder", "device", "pipe", "loop", "missing")
FIELD_VALUES = [-1, 0, 1, 2**31 - 1, 2**31, 2**40, 2**63 - 1, -(2**63)]
REPLACEMENTS = [None, 5, "x", [], {}, float("nan"), -1, 10**30]
MB = 2**20


def mutilate(data, recipe):
    """The bytes after every step of a recipe."""
    for name, *arguments in recipe:
        data = STEPS[name](data, *arguments)
    return data


def place(path, recipe):
    """Put a recipe's result at a path that holds the unharmed file."""
    name = recipe[0][0]
    if name not in PLACES:
        path.write_bytes(mutilate(path.read_bytes(), recipe))
        return
    path.unlink()
    if name == "folder":
        path.mkdir()
    elif name == "device":
        path.symlink_to("/dev/zero")
    elif name == "pipe":  # which nobody writes to
        os.mkfifo(path)
    elif name == "loop":
        path.symlink_to(path.name)


# Steps on bytes


def _split(change):
    """A step that changes what comes before and after a place."""

    def step(data, at, *arguments):
        at %= len(data) + 1
        return change(data[:at], data[at:], *arguments)

    return step


def _byte(data, at, value):
    at %= max(1, len(data))
    return data[:at] + bytes([value]) + data[at + 1 :]


def _flip(data, at, bit):
    return _byte(data, at, data[at % len(data)] ^ (1 << bit)) if data else data


def _field(data, at, value):
    """A little-endian 64-bit integer, where the file has one."""
    at = at % max(1, len(data) - 7)
    return data[:at] + struct.pack("<q", value) + data[at + 8 :]


@_split
def _insert(head, tail, text):
    return head + text.encode("utf-8", "surrogateescape") + tail


@_split
def _repeat(head, tail, count, times):
    return head + tail[:count] * times + tail[count:]


@_split
def _zero(head, tail, count):
    return head + bytes(min(count, len(tail))) + tail[count:]


@_split
def _exchange(head, tail, count):
    """Two neighbouring blocks in the other order."""
    return head + tail[count : 2 * count] + tail[:count] + tail[2 * count :]


@_split
def _nest(head, tail, depth, brackets):
    opening, closing = (part.encode() * depth for part in brackets.split("|"))
    return head + opening + closing + tail


@_split
def _long_line(head, tail, megabytes, text):
    return head + text.encode() * (megabytes * MB // len(text)) + tail


# Steps on lines


def _lines(change):
    def step(data, at, *arguments):
        lines = data.split(b"\n")
        last = lines.pop() if lines[-1] == b"" else None
        if lines:
            change(lines, at % len(lines), *arguments)
        return b"\n".join(lines if last is None else [*lines, last])

    return step


@_lines
def _drop_line(lines, at):
    del lines[at]


@_lines
def _repeat_line(lines, at, times):
    lines[at:at] = [lines[at]] * times


@_lines
def _exchange_lines(lines, at, other):
    other %= len(lines)
    lines[at], lines[other] = lines[other], lines[at]


@_lines
def _drop_field(lines, at, field):
    fields = re.findall(rb"\S+\s*", lines[at])
    if fields:
        del fields[field % len(fields)]
    lines[at] = b"".join(fields)


def _number(data, which, value):
    """Another number for one that the text holds."""
    found = list(re.finditer(rb"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", data))
    if not found:
        return data + NUMBERS[value]
    match = found[which % len(found)]
    return data[: match.start()] + NUMBERS[value] + data[match.end() :]


def _bomb(data, gigabytes, text):
    """Compressed: the text, then gigabytes of one line."""
    block = gzip.compress(text.encode() * (16 * MB // len(text)), 6)
    return gzip.compress(data, mtime=0) + block * (64 * gigabytes)


# Steps on checkpoints: whole zips, with right sums, that hold something else


def members_of(data):
    """[(name, contents)] of a zip."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def zipped(members, compression=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


def _zip_member(data, which, recipe):
    """One file in the zip mutilated, its sum right again."""
    try:
        parts = members_of(data)
    except Exception:
        return data
    name, content = parts[which % len(parts)]
    parts[which % len(parts)] = name, mutilate(content, recipe)
    return zipped(parts)


def _saved(state):
    out = io.BytesIO()
    torch.save(state, out)
    return out.getvalue()


def _entry(data, keys, which):
    """A checkpoint whose entry at ``keys`` is something else (or is not there)."""
    state = torch.load(io.BytesIO(data))
    inner = state
    for key in keys[:-1]:
        inner = inner[key]
    if which == "delete":
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = REPLACEMENTS[which]
    return _saved(state)


STEPS = {
    "cut": _split(lambda head, tail: head),
    "flip": _flip,
    "byte": _byte,
    "insert": _insert,
    "delete": _split(lambda head, tail, count: head + tail[count:]),
    "repeat": _repeat,
    "zero": _zero,
    "exchange": _exchange,
    "field": _field,
    "append": lambda data, text: data + text.encode(),
    "empty": lambda data: b"",
    "foreign": lambda data, kind: FOREIGN[kind],
    "drop line": _drop_line,
    "repeat line": _repeat_line,
    "exchange lines": _exchange_lines,
    "drop field": _drop_field,
    "number": _number,
    "mark": lambda data, which: MARKS[which] + data,
    "encode": lambda data, encoding: data.decode("utf-8", "replace").encode(encoding, "replace"),
    "character": lambda data, at, which: _insert(data, at, CHARACTERS[which]),
    "line ends": lambda data, end: data.replace(b"\n", end.encode()),
    "nest": _nest,
    "long line": _long_line,
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "gunzip": gzip.decompress,
    "bomb": _bomb,
    "zip member": _zip_member,
    "zip compress": lambda data: zipped(members_of(data), zipfile.ZIP_DEFLATED),
    "entry": _entry,
    "state": lambda data, which: _saved(REPLACEMENTS[which]),  # no dictionary
    "pickle": lambda data, which: pickle.dumps(REPLACEMENTS[which]),
}


# What hypothesis draws


def _step(name, *arguments):
    drawn = [a if isinstance(a, st.SearchStrategy) else st.just(a) for a in arguments]
    return st.tuples(st.just(name), *drawn).map(list)


def _common(size):
    """Steps that suit any file of so many bytes."""
    at, count = st.integers(0, size), st.integers(1, max(2, size // 3))
    return [
        _step("cut", at),
        _step("cut", at),
        _step("flip", at, st.integers(0, 7)),
        _step("flip", at, st.integers(0, 7)),
        _step("flip", at, st.integers(0, 7)),
        _step("byte", at, st.sampled_from([0, 10, 32, 127, 128, 255])),
        _step("insert", at, st.text(st.characters(max_codepoint=255), min_size=1, max_size=9)),
        _step("delete", at, count),
        _step("repeat", at, count, st.integers(2, 9)),
        _step("zero", at, count),
        _step("exchange", at, count),
        _step("append", st.sampled_from(["\0", "\n", "x", "\n\n\n", "PK\x03\x04"])),
        _step("foreign", st.sampled_from(sorted(FOREIGN))),
        _step("empty"),
        _step("gzip"),
    ]


def _mostly_one(steps):
    """Recipes: one step, sometimes two."""
    one, two = (st.lists(st.one_of(steps), min_size=1, max_size=most) for most in (1, 2))
    return two | one


def binary(data):
    """Recipes for a file of numbers."""
    at = st.integers(0, len(data))
    fields = _step("field", at, st.sampled_from(FIELD_VALUES))
    return _mostly_one([*_common(len(data)), fields, fields])


def text(data, brackets="(|)"):
    """Recipes for a text of lines; ``brackets`` are those that it may nest, opening|closing."""
    at = st.integers(0, len(data))
    line = st.integers(0, data.count(b"\n"))
    steps = [
        _step("drop line", line),
        _step("repeat line", line, st.integers(1, 3)),
        _step("exchange lines", line, line),
        _step("drop field", line, st.integers(0, 5)),
        _step("number", st.integers(0, 50), st.integers(0, len(NUMBERS) - 1)),
        _step("number", st.integers(0, 50), st.integers(0, len(NUMBERS) - 1)),
        _step("mark", st.integers(0, len(MARKS) - 1)),
        _step("encode", st.sampled_from(ENCODINGS)),
        _step("character", at, st.integers(0, len(CHARACTERS) - 1)),
        _step("character", at, st.integers(0, len(CHARACTERS) - 1)),
        _step("line ends", st.sampled_from(["\r\n", "\r", "", " ", "\n\n"])),
        _step("nest", at, st.sampled_from([1, 200, 3000, 100_000]), brackets),
        _step("long line", at, st.sampled_from([2, 8]), st.sampled_from(["a", "a ", "9", "("])),
    ]
    return _mostly_one([*_common(len(data)), *steps])


def packed_text(data, brackets="(|)"):
    """Recipes for a text compressed by gzip: damage to what is packed, too."""
    inner = text(gzip.decompress(data), brackets)
    packed = st.just([["gzip"]])
    return binary(data) | st.tuples(inner, packed).map(
        lambda parts: [["gunzip"], *parts[0], *parts[1]]
    )


def checkpoint(data):
    """Recipes for a checkpoint: damage to the zip, to what it holds, and other entries."""
    members = members_of(data)
    inner = _mostly_one(_common(200))
    replaced = st.integers(0, len(REPLACEMENTS) - 1)
    steps = [
        _step("zip member", st.integers(0, len(members) - 1), inner),
        _step("zip member", 0, _mostly_one(_common(len(members[0][1])))),
        _step("entry", st.sampled_from(_entries(data)), st.just("delete") | replaced),
        _step("entry", st.sampled_from(_entries(data)), st.just("delete") | replaced),
        _step("state", replaced),
        _step("pickle", replaced),
    ]
    at = st.integers(0, len(data))
    simple = [*_common(len(data)), _step("field", at, st.sampled_from(FIELD_VALUES))]
    return _mostly_one(simple) | st.lists(st.one_of(steps), min_size=1, max_size=1)


def _entries(data):
    """The keys of a checkpoint's entries, three levels deep."""

    def inside(value, path):
        if isinstance(value, dict):
            keys = list(value)
        else:
            keys = list(range(len(value))) if isinstance(value, list) else []
        for key in keys[:20]:
            if isinstance(key, (str, int)):
                yield [*path, key]
                if len(path) < 2:
                    yield from inside(value[key], [*path, key])

    return list(inside(torch.load(io.BytesIO(data)), []))


def remove(path):
    """Remove what a recipe put at a path."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    elif os.path.lexists(path):
        path.unlink()
