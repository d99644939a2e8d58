"""Options are declared once, as dataclass fields; parser, checks and documentation are derived.

    @dataclass(frozen=True, kw_only=True)
    class CacheSettings:
        window: int = option("remember the last N states", metavar="N")
        theta: float = option("factor of the states' similarities", 1.0)

In a group with the prefix ``cache`` the second one is ``--cache-theta``. This file imports neither
torch nor fairseq.
"""

import argparse
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, field, fields
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from fairseq_doc.errors import FairseqDocError

_OPTION, _GROUP = "option", "group"
_OURS = ("name", "needs", "without", "least", "below", "reads", "writes")  # not argparse's
REQUIRED: Any = MISSING
# {parameter of the Python functions: option of the command line}, where the names differ
_OPTIONS = {
    "cache.share": "cache-lambda",
    "columns": "batch-size",
    "components": "doc-components",
    "empty_sentences": "empty-lines",
    "lower_weight": "grow-lower-weight",
    "mark": "spans",
    "noise": "grow-noise",
    "precision": "matmul-precision",
    "project=False": "plain-output",
    "smoothing": "label-smoothing",
    "top_k": "sampling-topk",
    "top_p": "sampling-topp",
    "weight_bias": "doc-weight-bias",
}
MAX_GRID = 10_000  # values that an option such as 0:2:0.1 may list
T = TypeVar("T")


def option(help: str, default: Any = None, **argument: Any) -> Any:
    """A dataclass field that is an option. With the default ``REQUIRED`` it must be given.

    ``argument`` is passed to argparse's ``add_argument``, except for

    - ``positional=True``: an argument without dashes; ``after_dashes=True``: all words after ``--``
    - ``name``: the option's name, if it is not the field's
    - ``needs``: an option without which this one is refused
    - ``without``: options with which this one is refused
    - ``least`` and ``below``: its range, [least, below)
    - ``reads=True``: its value is a file that is read, a data folder, or several of them, ``a:b``;
      ``reads="once"``: no other option may read the same file
    - ``writes=True``: its value is a file that is written; or the endings that its name may have
    """
    # The first "help" is for fairseq's parser, which reads the metadata of its own dataclasses.
    return field(default=default, metadata={"help": help, _OPTION: {"help": help, **argument}})


def group(prefix: str, switch: str, help: str = "") -> Any:
    """A field that holds a dataclass of options, ``--PREFIX-...``; None unless ``switch`` is given.
    ``switch`` is an option of that class or, if there is a ``help``, a flag ``--SWITCH`` of its
    own."""
    return field(default=None, metadata={_GROUP: (prefix and f"{prefix}-", switch, help)})


def parse_grid(name: str, text: str, least: float = -math.inf) -> list[float]:
    """``0:2:0.05`` -> [0.0, 0.05, ..., 2.0], rounded to 10 decimals. Errors name the option,
    ``name``; no value may be below ``least``."""
    try:
        first, last, step = map(float, text.split(":"))
    except ValueError:
        first = last = step = math.nan
    if not (-math.inf < first <= last < math.inf and least <= first and 0 < step < math.inf):
        bound = "" if least == -math.inf else f"{least:g} <= "
        raise FairseqDocError(
            f"{name}: expected FROM:TO:STEP with {bound}FROM <= TO and STEP > 0, such as 0:2:0.1; "
            f"got {text!r}"
        )
    if (last - first) / step > MAX_GRID:
        raise FairseqDocError(f"{name}: expected at most {MAX_GRID:,} values; got {text!r}")
    return [round(first + i * step, 10) for i in range(int((last - first) / step + 1e-9) + 1)]


def rate(help: str, default: float) -> Any:
    """An option in [0, 1), such as a dropout rate."""
    return option(help, default, least=0, below=1)


def with_flags(error: FairseqDocError) -> str:
    """The message of an error with the flags of a command line in place of the parameters:
    ``cache.theta`` becomes ``--cache-theta``."""
    message = str(error)
    for name in error.parameters:
        flag = "--" + _OPTIONS.get(name, name).replace(".", "-").replace("_", "-")
        message = re.sub(rf"(?<![\w./-]){re.escape(name)}(?![\w/-])", flag, message, count=1)
    return message


def check_ranges(kind: type, settings: Any, prefix: str = "") -> None:
    """Raise ``FairseqDocError`` for a value outside the range or choices of the dataclass ``kind``.
    ``settings`` is an object of that class or an OmegaConf configuration; errors put ``prefix``,
    such as ``cache.``, before the name."""
    for entry in fields(kind):
        if problem := _range_problem(entry, getattr(settings, entry.name)):
            name = prefix + entry.name
            raise FairseqDocError(f"{name} {problem}", name)


def _range_problem(entry: Field, value: Any) -> str | None:
    rules = entry.metadata.get(_OPTION, {})
    if choices := rules.get("choices"):
        for one in value if isinstance(value, list | tuple) else (value,):
            if one not in (None, *choices):
                return f"must be {' or '.join(map(str, choices))}; got {one}"
    least, below = rules.get("least"), rules.get("below", math.inf)
    if least is None or value is None or least <= value < below:
        return None
    expected = f"at least {least}" if below == math.inf else f"in [{least}, {below})"
    return f"must be {expected}; got {value}"


def files_read(settings: Any, once: bool = False) -> list[str]:
    """All files and folders that the options read; with ``once``, only those that no second option
    may read."""
    paths: list[str] = []
    for entry in fields(settings):
        value, reads = getattr(settings, entry.name), entry.metadata.get(_OPTION, {}).get("reads")
        if value is not None and _GROUP in entry.metadata:
            paths += files_read(value, once)
        elif reads and value is not None and (reads == "once" or not once):
            several = value if isinstance(value, list) else [value]
            for one in map(str, several):
                paths += {one, *one.split(os.pathsep)}
    return paths


def files_written(settings: Any) -> dict[str, str]:
    """{option: the file that it writes}. Raises ``FairseqDocError`` for a name whose ending is not
    one of those declared."""
    paths = {}
    for entry in fields(settings):
        path, endings = getattr(settings, entry.name), entry.metadata.get(_OPTION, {}).get("writes")
        if endings and path:
            check_ending(path, () if endings is True else endings)
            paths[entry.name] = path
    return paths


def check_ending(path: str, endings: Sequence[str]) -> None:
    """Raise ``FairseqDocError`` unless the name of a file has one of the endings, if there are any."""
    if endings and not path.lower().endswith(tuple(endings)):
        raise FairseqDocError(f"{path}: expected a name ending in {' or '.join(endings)}")


def check_needs(option: str, needs: Mapping[str, object], given: object = True) -> None:
    """If an option is ``given``, refuse it unless all ``needs`` are met: {what it needs: whether
    that is so}."""
    missing = [need for need, is_so in needs.items() if not is_so]
    if given and missing:
        raise FairseqDocError(f"{option} needs {'; '.join(missing)}")


def refuse_options(parser: argparse.ArgumentParser, refusals: Mapping[str, str]) -> None:
    """Refuse options that users of fairseq expect, {name without dashes: what to do instead}. They
    do not appear in the help."""

    class Refuse(argparse.Action):
        def __call__(self, parser, namespace, values, option_string=None):
            name = str(option_string).removeprefix("--")
            raise FairseqDocError(f"{option_string} is not available: {refusals[name]}")

    for name in refusals:
        unseen: dict[str, Any] = {"default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
        parser.add_argument(f"--{name}", action=Refuse, nargs="*", **unseen)


def add_options(
    parser: argparse.ArgumentParser, kind: type, prefix: str = "", needed: bool = True
) -> None:
    """Add a dataclass's options and groups to a parser. ``needed``: options without a default are
    required; not in a group, which need not be switched on."""
    for entry, of_type in _entries(kind):
        if _GROUP in entry.metadata:
            own_prefix, switch, help = entry.metadata[_GROUP]
            if help:
                parser.add_argument(f"--{switch}", action="store_true", help=help)
            add_options(parser, of_type, own_prefix, needed=False)
        else:
            _add(parser, entry, of_type, prefix, needed)


def _add(
    parser: argparse.ArgumentParser, entry: Field, of_type: type, prefix: str, needed: bool
) -> None:
    rules, name = entry.metadata[_OPTION], prefix + _option_name(entry)
    settings = {key: value for key, value in rules.items() if key not in _OURS}
    if settings.pop("after_dashes", False):
        _add_words_after_dashes(parser, _dest(name), settings["help"])
        return
    default, help = entry.default, settings["help"]
    if default is not MISSING and _is_given(default) and "(default:" not in help:
        settings["help"] = f"{help} (default: {_as_text(default)})"
    if of_type is bool:
        settings.setdefault("action", "store_true")
    elif "choices" not in settings:
        settings.setdefault("type", of_type)
    if settings.pop("positional", False):
        parser.add_argument(_dest(name), default=None, **settings)
    else:
        parser.add_argument(f"--{name}", required=needed and default is MISSING, **settings)


def _add_words_after_dashes(parser: argparse.ArgumentParser, dest: str, help: str) -> None:
    """Store the words after ``--`` in ``dest``, None without ``--``; argparse would read them as
    arguments."""
    parser.add_argument_group("after --", help)
    parse = parser.parse_known_args

    def parse_up_to_dashes(words: Any = None, namespace: Any = None) -> Any:
        words = list(words or ())
        end = words.index("--") if "--" in words else len(words)
        args, unknown = parse(words[:end], namespace)
        setattr(args, dest, words[end + 1 :] if end < len(words) else None)
        return args, unknown

    setattr(parser, "parse_known_args", parse_up_to_dashes)  # noqa: B010


def read_options(kind: type[T], given: Mapping[str, Any], prefix: str = "") -> T:
    """The dataclass filled from ``given``, {option with _ for -: value}; None and False mean not
    given. Options of a group are refused without the group's switch."""
    values = {}
    for entry, of_type in _entries(kind):
        if _GROUP in entry.metadata:
            value: Any = _read_group(of_type, given, *entry.metadata[_GROUP])
        else:
            value = given.get(_dest(prefix + _option_name(entry)))
        if value is not None:
            values[entry.name] = value
        if problem := _range_problem(entry, value):
            raise FairseqDocError(f"--{prefix}{_option_name(entry)} {problem}")
        if _is_given(value):
            _check_others(entry, given, kind)
    return kind(**values)


def _check_others(entry: Field, given: Mapping[str, Any], kind: type) -> None:
    """Refuse an option without the option it needs, or with one it cannot be combined with."""
    rules = entry.metadata.get(_OPTION, {})
    needed = rules.get("needs")
    if needed and not _is_given(given.get(_dest(needed))):
        raise FairseqDocError(f"--{_option_name(entry)} needs --{needed}")
    for other in rules.get("without", ()):
        if _is_given(given.get(_dest(other))):
            raise FairseqDocError(
                f"--{_option_name(entry)} cannot be combined with {_named(other, kind)}"
            )


def _read_group(
    kind: type[T], given: Mapping[str, Any], prefix: str, switch: str, help: str
) -> T | None:
    switch_name = switch if help else prefix + switch
    if _is_given(given.get(_dest(switch_name))):
        return read_options(kind, given, prefix)
    for entry, _ in _entries(kind):
        name = prefix + _option_name(entry)
        if _is_given(given.get(_dest(name))):
            raise FairseqDocError(f"--{name} needs --{switch_name}")
    return None


def _entries(kind: type) -> Iterator[tuple[Field, Any]]:
    """The fields of a dataclass that are options or groups, each with its type without None."""
    hints = get_type_hints(kind)
    for entry in fields(kind):
        of_type = hints[entry.name]
        if get_origin(of_type) is UnionType:
            of_type = next(part for part in get_args(of_type) if part is not type(None))
        if _OPTION in entry.metadata or _GROUP in entry.metadata:
            yield entry, of_type


def _option_name(entry: Field) -> str:
    """The name of an option, without the prefix of its group."""
    return entry.metadata[_OPTION].get("name", entry.name).replace("_", "-")


def _named(option: str, kind: type) -> str:
    """How an error mentions an option of ``kind``: ``--seeds``, or ``a SPACE`` without dashes."""
    for entry, _ in _entries(kind):
        rules = entry.metadata.get(_OPTION, {})
        if rules and _option_name(entry) == option:
            if rules.get("after_dashes"):
                return "options after --"
            if rules.get("positional"):
                return f"a {option.upper()}"
    return f"--{option}"


def _dest(name: str) -> str:
    return name.replace("-", "_")


def _is_given(value: Any) -> bool:
    return value is not None and value is not False


def _as_text(default: Any) -> str:
    if default is True:
        return "on"
    if isinstance(default, float):
        return f"{default:g}"
    return f"{default:,}" if isinstance(default, int) else str(default)
