"""When a command on a mutilated input did right.

It either refused the input: a status that is not zero, one clear line at the end, no result; or it gave the
result of the unharmed input; or the mutilated file has a meaning of its own, as an independent reader here finds,
and the result fits that. Each function ``fits_*`` (original, mutilated, result, expected) returns what is wrong,
None for nothing; each is called only where the result differs from the unharmed one.
"""

import gzip
import json
import math
import re
import signal
import unicodedata
import zlib
from collections import Counter

import numpy as np
import yaml

CLEAR = 700  # characters of an error line, the longest path aside
MEMORY = 2 * 10**9
_WRONG_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")


class Unreadable(Exception):
    """A file without a meaning, and why."""


# A refusal


def problem_of_ending(result, printed_on_failure):
    """What is wrong with how a command ended, whatever its result; None for nothing.

    Args:
        result: a :class:`fork_server.Result`.
        printed_on_failure: whether a command that fails may have written to standard output.
    """
    if result.timed_out or result.status == -signal.SIGXCPU:
        return f"hung: ended after {result.seconds:.0f} s"
    if result.memory > MEMORY:
        return f"{result.memory / 1e9:.2f} GB of memory"
    for name, text in (("standard output", result.out), ("standard error", result.err)):
        if "Traceback (most recent call last)" in text or "Exception ignored in" in text:
            return f"a traceback on {name}"
        if re.search(r"(?m)^(Fatal Python error|terminate called|Segmentation fault)", text):
            return f"a crash, on {name}"
    if result.left_processes:
        return "left processes behind"
    if result.status < 0:
        return f"ended by signal {-result.status}"
    return None if result.status == 0 else _problem_of_refusal(result, printed_on_failure)


def _problem_of_refusal(result, printed_on_failure):
    lines = [line for line in result.err.splitlines() if line.strip()]
    if not lines:
        return f"status {result.status} without a word"
    program = result.words[0]
    last = lines[-1]
    beginnings = ["fairseq_doc: error: ", f"{program}: error: "]
    if program == "fairseq-doc":
        beginnings = [f"fairseq-doc {result.words[1]}: error: "]
    if not last.startswith(tuple(beginnings)):
        return "its last line is no error of ours"
    if len(last) > CLEAR + 2 * max(map(len, result.words)):
        return f"an error of {len(last):,} characters"
    if any(unicodedata.category(character) in ("Cc", "Zl", "Zp", "Cs") for character in last):
        return "control characters in its error"
    if re.search(r"memory", last, re.IGNORECASE):
        return "blames the memory, not the file"
    if result.out and not printed_on_failure:
        return "printed a result and failed"
    return None


# Readers of their own


def unpacked(data):
    """The bytes of a text file, decompressed."""
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise Unreadable(f"damaged gzip: {error}") from None


def decoded(data):
    """The text of a UTF-8 file, compressed or not, without its byte order mark."""
    data = unpacked(data)
    for mark in _WRONG_MARKS:
        if data.startswith(mark):
            raise Unreadable("UTF-16 or UTF-32")
    try:
        return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(str(error)) from None


def lines_of(data):
    """The lines of a text file, split at line feeds only."""
    lines = decoded(data).split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def words_of(line):
    return re.sub(r"\s+", " ", line).strip().split()


def tokens_of_trees(data):
    """The brackets and words of a file of trees."""
    tokens = re.findall(r"[()]|[^()\s]+", decoded(data))
    depth = 0
    for token in tokens:
        if token == "(":
            depth += 1
        elif token == ")":
            depth -= 1
        elif depth == 0:
            raise Unreadable(f"{token[:40]!r} outside of brackets")
        if depth < 0:
            raise Unreadable("a bracket that closes nothing")
    if depth:
        raise Unreadable(f"{depth} brackets left open")
    return tokens


def lists_of(data):
    """[[(score, tokens of the tree)]] of an n-best file with headers."""
    lines = [line for line in lines_of(data) if line.strip()]
    found = []
    while lines:
        header = re.fullmatch(r"\s*(\d{1,9})\s+(\S+)\s*", lines.pop(0))
        if header is None:
            raise Unreadable("no header where one belongs")
        rows = [lines.pop(0) for _ in range(int(header[1])) if lines]
        if len(rows) != int(header[1]) or not rows:
            raise Unreadable("fewer candidates than its header says")
        found.append([_candidate(row) for row in rows])
    return found


def _candidate(row):
    score, _, tree = row.strip().partition("\t")
    if not tree:
        raise Unreadable("a candidate without a tree")
    return _finite(score), tokens_of_trees(tree.encode())


def _finite(text):
    try:
        number = float(text)
    except ValueError:
        raise Unreadable(f"{text[:40]!r} is no number") from None
    if not math.isfinite(number):
        raise Unreadable(f"{text[:40]!r} is not finite")
    return number


def generated_of(data):
    """{(kind, sentence): [what follows]} of fairseq-generate's output."""
    found = {}
    for line in lines_of(data):
        match = re.fullmatch(r"([STHDP])-([0-9]+)\t(.*)", line, re.DOTALL)
        if match:
            found.setdefault((match[1], int(match[2])), []).append(match[3])
    numbers = {number for _, number in found}
    if not numbers or numbers != set(range(len(numbers))):
        raise Unreadable("sentences are missing")
    for kind in {kind for kind, _ in found}:
        if any((kind, number) not in found for number in numbers):
            raise Unreadable(f"lines of {kind} are missing")
    for (kind, _), rows in found.items():
        if kind in "HD" and any("\t" not in row for row in rows):
            raise Unreadable("a hypothesis that is cut off")
        if kind == "P":
            for row in rows:
                [_finite(number) for number in row.split()]
    return found


# What fits


def never(original, mutilated, result, expected):
    """Nothing but the unharmed input's result."""
    return "another result than of the unharmed file"


def fits_scored_lines(original, mutilated, result, expected):
    """``score --json`` of a text: its lines' words, and equal scores for equal lines."""
    lines = [words_of(line) for line in lines_of(mutilated)]
    got = json.loads(result.out)["sentences"]
    if [entry["text"].split() for entry in got] != lines:
        return "other words than the text's"
    before = {entry["text"]: entry["log_prob"] for entry in json.loads(expected)["sentences"]}
    for entry in got:
        if not (math.isfinite(entry["log_prob"]) and entry["log_prob"] < 0):
            return "a log-probability that is none"
        if abs(entry["log_prob"] - before.get(entry["text"], entry["log_prob"])) > 1e-4:
            return "another score for an equal line"
    return None


def fits_pairs(original, mutilated, result, expected):
    """``pairs`` of JSON lines: as many pairs, of the same kinds."""
    rows = [json.loads(line) for line in lines_of(mutilated)]
    if rows == [json.loads(line) for line in lines_of(original)]:
        return "another result for equal pairs"
    got, kinds = json.loads(result.out), Counter(row.get("UID") for row in rows)
    counts = {name: kind["pairs"] for name, kind in got["kinds"].items()}
    if got["all"]["pairs"] != len(rows) or sorted(counts.values()) != sorted(kinds.values()):
        return "other counts than the pairs'"
    accuracies = [got["all"]["accuracy"], *(kind["accuracy"] for kind in got["kinds"].values())]
    right = all(0 <= accuracy <= 100 for accuracy in accuracies)
    return None if right else "an accuracy that is none"


def fits_kaldi(original, mutilated, result, expected):
    """``rescore`` with another list, other scores or references of its six utterances."""
    rows = [(line.split() or [""]) for line in lines_of(mutilated)]
    before = [line.split() for line in lines_of(original)]
    if rows == before:
        return "another result for equal lines"
    keys = Counter(row[0] for row in rows)
    if keys != Counter(row[0] for row in before):
        return "other candidates or utterances than the other files'"
    got = json.loads(result.out)
    if (got["utterances"], got["candidates"]) != (6, 12):
        return "another number of utterances or candidates"
    finite = all(math.isfinite(got[name]) for name in ("value", "first", "weight", "bonus"))
    return None if finite else "a number that is none"


def fits_prepared_text(split):
    """``prepare-lm --json`` of a text whose ``split`` is mutilated: as many lines and tokens as read."""

    def fits(original, mutilated, result, expected):
        lines = [words_of(line) for line in lines_of(mutilated)]
        got, before = json.loads(result.out)["splits"], json.loads(expected)["splits"]
        tokens = sum(len(words) + 1 for words in lines)
        if (got[split]["sentences"], got[split]["tokens"]) != (len(lines), tokens):
            return "other counts than the text's"
        others = [name for name in got if name != split]
        return (
            None if all(got[n] == before[n] for n in others) else "another count of another split"
        )

    return fits


def fits_parallel_text(original, mutilated, result, expected):
    """``prepare-mt --json`` with another training text: the other splits keep their sentences."""
    lines = lines_of(mutilated)
    got, before = json.loads(result.out)["sides"], json.loads(expected)["sides"]
    counts = {side["splits"]["train"]["sentences"] for side in got.values()}
    if len(counts) != 1 or max(counts) > len(lines):
        return "more training pairs than lines"
    for side in got:
        for split in ("valid", "test"):
            was, is_ = (sides[side]["splits"][split]["sentences"] for sides in (before, got))
            if was != is_:
                return "another number of sentences in another split"
    return None


def fits_interactive(original, mutilated, result, expected):
    """fairseq-interactive: one translation a line; Python's text files end lines at CR too."""
    text = decoded(mutilated)
    numbers = {int(number) for number in re.findall(r"(?m)^H-(\d+)\t", result.out)}
    counts = {
        len(lines_of(mutilated)),
        len(text.replace("\r\n", "\n").replace("\r", "\n").splitlines()),
    }
    counts.add(len(text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")))
    return None if numbers in ({*range(n)} for n in counts) else "another number of lines"


def fits_first_line(original, mutilated, result, expected):
    """``attention``: equal for an equal first line."""
    first, before = lines_of(mutilated)[0], lines_of(original)[0]
    return "another result for an equal line" if words_of(first) == words_of(before) else None


def fits_references(original, mutilated, result, expected):
    """``bleu`` and ``rouge``: as many references as before, and other ones."""
    lines, before = lines_of(mutilated), lines_of(original)
    if len(lines) != len(before):
        return f"{len(lines)} references for {len(before)} hypotheses"
    if [words_of(line) for line in lines] == [words_of(line) for line in before]:
        return "another result for equal words"
    return _problem_of_numbers(json.loads(result.out)["scores"])


def fits_generated(original, mutilated, result, expected):
    """``bleu``, ``rouge`` and ``collect-parses`` of a generated file."""
    found, before = generated_of(mutilated), generated_of(original)
    if found == before:
        return "another result for equal hypotheses"
    if {number for _, number in found} != {number for _, number in before}:
        return "another number of sentences than there are references"
    return _problem_of_numbers(json.loads(result.out).get("scores", {}))


def fits_trees(original, mutilated, result, expected):
    """``evalb`` of a file of trees."""
    if tokens_of_trees(mutilated) == tokens_of_trees(original):
        return "another result for equal trees"
    got = json.loads(result.out)
    if got.get("sentences", 6) != 6:
        return "another number of sentences"
    return _problem_of_numbers({name: got[name] for name in ("f1", "precision") if name in got})


def fits_prepared_trees(original, mutilated, result, expected):
    """``prepare-parsing --json``."""
    if tokens_of_trees(mutilated) == tokens_of_trees(original):
        return "another result for equal trees"
    got, before = json.loads(result.out)["splits"], json.loads(expected)["splits"]
    same = all(got[name] == before[name] for name in ("valid", "test"))
    return None if same else "another count of another split"


def fits_lists(original, mutilated, result, expected):
    """``rerank`` and ``evalb`` of an n-best file."""
    found = lists_of(mutilated)
    if found == lists_of(original):
        return "another result for equal lists"
    got = json.loads(result.out)
    if got["sentences"] != len(found):
        return f"{got['sentences']} sentences for {len(found)} lists"
    if "candidates" in got and got["candidates"] != sum(map(len, found)):
        return "another number of candidates"
    return _problem_of_numbers({name: got[name] for name in ("f1",) if name in got})


def fits_parameters(original, mutilated, result, expected):
    """``evalb --prm``: every line names a parameter and has its values."""
    known = {"LABELED": 1, "CUTOFF_LEN": 1, "DELETE_LABEL": 1, "DELETE_LABEL_FOR_LENGTH": 1}
    known |= {"QUOTE_LABEL": 1, "EQ_LABEL": 2, "EQ_WORD": 2}
    for line in lines_of(mutilated):
        words = line.split()
        if not words or words[0].startswith("#") or words[0] in ("DEBUG", "MAX_ERROR"):
            continue
        if known.get(words[0]) != len(words) - 1:
            return f"{line[:40]!r} is no parameter"
        if words[0] in ("LABELED", "CUTOFF_LEN") and not words[1].isdecimal():
            return f"{line[:40]!r} is no number"
    return None


def fits_vectors(original, mutilated, result, expected):
    """A training with a file of embeddings: a header, and as many rows of as many numbers."""
    lines = [line.rstrip().split(" ") for line in lines_of(mutilated)]
    if not lines or len(lines[0]) != 2:
        return "no header"
    rows = [line for line in lines[1:] if line != [""]]
    if len(rows) != int(lines[0][0]):
        return f"{len(rows)} rows, and the header says {lines[0][0]}"
    for row in rows:
        if len(row) != 9:
            return "a row of another width"
        [_finite(number) for number in row[1:]]
    if len({row[0] for row in rows}) != len(rows):
        return "a word with two rows"
    return None


def fits_log(original, mutilated, result, expected):
    """``curves --json``: numbers that the log holds."""
    text = mutilated.decode("utf-8", "replace")
    (run,) = json.loads(result.out)["runs"].values()
    for epoch, perplexity in run["perplexity"].items():
        if not (math.isfinite(perplexity) and perplexity > 0 and epoch in text):
            return f"epoch {epoch} has perplexity {perplexity}"
    return None


def fits_merges(original, mutilated, result, expected):
    """A file of subword_nmt's merges: two units a line after the version; empty lines at the end."""
    lines = decoded(mutilated).rstrip("\n").split("\n")
    rest = lines[1:] if lines and lines[0].startswith("#version") else lines
    if any(len(line.split(" ")) != 2 for line in rest):
        return "a line that is no merge"
    return None


def fits_pieces(original, mutilated, result, expected):
    """A model of sentencepiece, which has no checksum: as long as before, so that nothing is missing."""
    return "a model that was cut off" if len(mutilated) < len(original) else None


def fits_yaml(original, mutilated, result, expected):
    """fairseq-hydra-train with another configuration, which must be one."""
    try:
        found = yaml.safe_load(decoded(mutilated))
    except yaml.YAMLError as error:
        return f"no YAML: {str(error)[:60]}"
    if found == yaml.safe_load(decoded(original)):
        return "another result for equal settings"
    return None if isinstance(found, dict) else "no mapping"


def fits_dictionary(original, mutilated, result, expected):
    """A dictionary without a checksum: a word and its count a line, no word twice."""
    words = []
    for line in lines_of(mutilated):
        parts = line.rsplit(" ", 1)
        if len(parts) != 2 or not parts[0].strip() or not re.fullmatch(r"[0-9]+", parts[1].strip()):
            return f"{line[:40]!r} is no word with its count"
        words.append(parts[0])
    if len(set(words)) != len(words):
        return "a word twice"
    before = [line.rsplit(" ", 1)[0] for line in lines_of(original)]
    return "another result for equal words" if words == before else None


def fits_index(original, mutilated, result, expected):
    """An .idx without a checksum: nothing but the original's contents describes the .bin."""
    return "sizes or offsets that are not the data's"


def fits_tokens(vocabulary):
    """A .bin without a checksum, of 16-bit tokens: as long as before, other words of the vocabulary."""

    def fits(original, mutilated, result, expected):
        if len(mutilated) != len(original):
            return "another length than the index says"
        tokens = np.frombuffer(mutilated, dtype="<u2")
        return "tokens outside the dictionary" if tokens.max() >= vocabulary else None

    return fits


def _problem_of_numbers(value):
    """A number in nested lists and dicts that is no score in percent."""
    if isinstance(value, dict):
        return next(filter(None, (_problem_of_numbers(v) for v in value.values())), None)
    if isinstance(value, list):
        return next(filter(None, map(_problem_of_numbers, value)), None)
    if isinstance(value, float) and not -1e-6 <= value <= 100 + 1e-6:
        return f"a score of {value}"
    return None
