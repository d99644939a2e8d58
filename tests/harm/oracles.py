"""When a command on a mutilated input did right.

It either refused the input: a status that is not zero, one clear line at the end, no result; or it gave the
result of the unharmed input; or the mutilated file has a meaning of its own, as an independent reader here finds,
and the result fits that. Each function ``fits_*`` (original, mutilated, result, expected) asserts so; it is called
only where the result differs from the unharmed one. An AssertionError says what is wrong.
"""

import gzip
import json
import math
import os
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


def wrong(check, *arguments):
    """What is wrong, as a check says it; None for nothing."""
    try:
        return check(*arguments)
    except AssertionError as error:
        return str(error)


# A refusal


def check_ending(result, printed_on_failure=True):
    """How a command must end, whatever its result.

    Args:
        result: a :class:`fork_server.Result`.
        printed_on_failure: whether a command that fails may have written to standard output.
    """
    hung = result.timed_out or result.status == -signal.SIGXCPU
    assert not hung, f"hung: ended after {result.seconds:.0f} s"
    assert result.memory <= MEMORY, f"{result.memory / 1e9:.2f} GB of memory"
    for text in (result.out, result.err):
        traceback = "Traceback (most recent call last)" in text or "Exception ignored in" in text
        assert not traceback, f"a traceback\n{result.err[-2000:]}"
        crash = re.search(r"(?m)^(Fatal Python error|terminate called|Segmentation fault)", text)
        assert not crash, "a crash"
    assert not result.left_processes, "left processes behind"
    assert result.status >= 0, f"ended by signal {-result.status}"
    if result.status != 0:
        _check_refusal(result, printed_on_failure)


def _check_refusal(result, printed_on_failure):
    lines = [line for line in result.err.splitlines() if line.strip()]
    assert lines, f"status {result.status} without a word"
    program, last = result.words[0], lines[-1]
    beginnings = ("fairseq_doc: error: ", f"{program}: error: ")
    if program == "fairseq-doc":
        beginnings = f"fairseq-doc {result.words[1]}: error: "
    assert last.startswith(beginnings), f"its last line is no error of ours: {last[:300]}"
    clear = len(last) <= CLEAR + 2 * max(map(len, result.words))
    assert clear, f"an error of {len(last):,} characters"
    controls = any(unicodedata.category(c) in ("Cc", "Zl", "Zp", "Cs") for c in last)
    assert not controls, "control characters in its error"
    assert not re.search(r"memory", last, re.IGNORECASE), "blames the memory, not the file"
    assert printed_on_failure or not result.out, "printed a result and failed"
    # An error that nobody foresaw must name a file.
    assert result.status != os.EX_SOFTWARE or " after reading " in last, "names no file"


# Readers of their own


def decoded(data):
    """The text of a UTF-8 file, compressed or not, without its byte order mark."""
    try:
        data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
        assert not data.startswith(_WRONG_MARKS), "UTF-16 or UTF-32"
        return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise AssertionError(f"a result from a file without a meaning: {error}") from None


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
        assert depth or token == "(", f"{token[:40]!r} outside of brackets"
        depth += {"(": 1, ")": -1}.get(token, 0)
    assert depth == 0, f"{depth} brackets left open"
    return tokens


def lists_of(data):
    """[[(score, tokens of the tree)]] of an n-best file with headers."""
    lines = [line for line in lines_of(data) if line.strip()]
    found = []
    while lines:
        header = re.fullmatch(r"\s*(\d{1,9})\s+(\S+)\s*", lines.pop(0))
        assert header, "no header where one belongs"
        rows = [lines.pop(0).strip().partition("\t") for _ in range(int(header[1])) if lines]
        assert rows and len(rows) == int(header[1]), "fewer candidates than its header says"
        assert all(tree for _, _, tree in rows), "a candidate without a tree"
        found.append([(_finite(score), tokens_of_trees(tree.encode())) for score, _, tree in rows])
    return found


def _finite(text):
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    assert math.isfinite(number), f"{text[:40]!r} is no finite number"
    return number


def generated_of(data):
    """{(kind, sentence): [what follows]} of fairseq-generate's output."""
    found = {}
    for line in lines_of(data):
        match = re.fullmatch(r"([STHDP])-([0-9]+)\t(.*)", line, re.DOTALL)
        if match:
            found.setdefault((match[1], int(match[2])), []).append(match[3])
    numbers = {number for _, number in found}
    assert numbers and numbers == set(range(len(numbers))), "sentences are missing"
    for kind in {kind for kind, _ in found}:
        assert all((kind, n) in found for n in numbers), f"lines of {kind} are missing"
    for (kind, _), rows in found.items():
        assert kind not in "HD" or all("\t" in row for row in rows), "a hypothesis that is cut off"
        if kind == "P":
            [_finite(number) for row in rows for number in row.split()]
    return found


# What fits


def never(original, mutilated, result, expected):
    """Nothing but the unharmed input's result."""
    raise AssertionError("another result than of the unharmed file")


def fits_scored_lines(original, mutilated, result, expected):
    """``score --json`` of a text: its lines' words, and equal scores for equal lines."""
    lines = [words_of(line) for line in lines_of(mutilated)]
    got = json.loads(result.out)["sentences"]
    assert [entry["text"].split() for entry in got] == lines, "other words than the text's"
    before = {entry["text"]: entry["log_prob"] for entry in json.loads(expected)["sentences"]}
    for entry in got:
        log_prob = entry["log_prob"]
        assert -math.inf < log_prob < 0, "a log-probability that is none"
        difference = abs(log_prob - before.get(entry["text"], log_prob))
        assert difference <= 1e-4, "another score for an equal line"


def fits_pairs(original, mutilated, result, expected):
    """``pairs`` of JSON lines: as many pairs, of the same kinds."""
    rows, before = ([json.loads(line) for line in lines_of(data)] for data in (mutilated, original))
    assert rows != before, "another result for equal pairs"
    got, kinds = json.loads(result.out), Counter(row.get("UID") for row in rows)
    counts = sorted(kind["pairs"] for kind in got["kinds"].values())
    same = got["all"]["pairs"] == len(rows) and counts == sorted(kinds.values())
    assert same, "other counts than the pairs'"
    accuracies = [got["all"]["accuracy"], *(kind["accuracy"] for kind in got["kinds"].values())]
    assert all(0 <= accuracy <= 100 for accuracy in accuracies), "an accuracy that is none"


def fits_kaldi(original, mutilated, result, expected):
    """``rescore`` with another list, other scores or references of its six utterances."""
    rows, before = ([line.split() for line in lines_of(data)] for data in (mutilated, original))
    assert rows != before, "another result for equal lines"
    keys, known = (Counter("".join(row[:1]) for row in of) for of in (rows, before))
    assert keys == known, "other candidates or utterances than the other files'"
    got = json.loads(result.out)
    counts = (got["utterances"], got["candidates"])
    assert counts == (6, 12), "another number of utterances or candidates"
    numbers = [got[name] for name in ("value", "first", "weight", "bonus")]
    assert all(map(math.isfinite, numbers)), "a number that is none"


def fits_prepared_text(split):
    """``prepare-lm --json`` of a text whose ``split`` is mutilated: as many lines and tokens as read."""

    def fits(original, mutilated, result, expected):
        lines = [words_of(line) for line in lines_of(mutilated)]
        got, before = json.loads(result.out)["splits"], json.loads(expected)["splits"]
        counts = {"sentences": len(lines), "tokens": sum(len(words) + 1 for words in lines)}
        assert counts.items() <= got[split].items(), "other counts than the text's"
        assert {**got, split: 0} == {**before, split: 0}, "another count of another split"

    return fits


def fits_parallel_text(original, mutilated, result, expected):
    """``prepare-mt --json`` with another training text: the other splits keep their sentences."""
    got, before = (json.loads(text)["sides"] for text in (result.out, expected))
    counts = {side["splits"]["train"]["sentences"] for side in got.values()}
    fit = len(counts) == 1 and max(counts) <= len(lines_of(mutilated))
    assert fit, "more training pairs than lines"
    for side in got:
        for split in ("valid", "test"):
            was, is_ = (sides[side]["splits"][split]["sentences"] for sides in (before, got))
            assert was == is_, "another number of sentences in another split"


def fits_interactive(original, mutilated, result, expected):
    """fairseq-interactive: one translation a line; Python's text files end lines at CR too."""
    text = decoded(mutilated).replace("\r\n", "\n").replace("\r", "\n")
    numbers = {int(number) for number in re.findall(r"(?m)^H-(\d+)\t", result.out)}
    lines = (lines_of(mutilated), text.splitlines(), text.removesuffix("\n").split("\n"))
    assert any(numbers == {*range(len(of))} for of in lines), "another number of lines"


def fits_first_line(original, mutilated, result, expected):
    """``attention``: equal for an equal first line."""
    first, before = (words_of(lines_of(data)[0]) for data in (mutilated, original))
    assert first != before, "another result for an equal line"


def fits_references(original, mutilated, result, expected):
    """``bleu`` and ``rouge``: as many references as before, and other ones."""
    lines, before = (list(map(words_of, lines_of(data))) for data in (mutilated, original))
    assert len(lines) == len(before), f"{len(lines)} references for {len(before)} hypotheses"
    assert lines != before, "another result for equal words"
    _check_percents(json.loads(result.out)["scores"])


def fits_generated(original, mutilated, result, expected):
    """``bleu``, ``rouge`` and ``collect-parses`` of a generated file."""
    found, before = generated_of(mutilated), generated_of(original)
    assert found != before, "another result for equal hypotheses"
    same = {number for _, number in found} == {number for _, number in before}
    assert same, "another number of sentences than there are references"
    _check_percents(json.loads(result.out).get("scores", {}))


def fits_trees(original, mutilated, result, expected):
    """``evalb`` of a file of trees."""
    assert tokens_of_trees(mutilated) != tokens_of_trees(original), "another result for equal trees"
    got = json.loads(result.out)
    assert got.get("sentences", 6) == 6, "another number of sentences"
    _check_percents([got.get("f1"), got.get("precision")])


def fits_prepared_trees(original, mutilated, result, expected):
    """``prepare-parsing --json``."""
    assert tokens_of_trees(mutilated) != tokens_of_trees(original), "another result for equal trees"
    got, before = json.loads(result.out)["splits"], json.loads(expected)["splits"]
    same = all(got[name] == before[name] for name in ("valid", "test"))
    assert same, "another count of another split"


def fits_lists(original, mutilated, result, expected):
    """``rerank`` and ``evalb`` of an n-best file."""
    found = lists_of(mutilated)
    assert found != lists_of(original), "another result for equal lists"
    got = json.loads(result.out)
    assert got["sentences"] == len(found), f"{got['sentences']} sentences for {len(found)} lists"
    candidates = sum(map(len, found))
    assert got.get("candidates", candidates) == candidates, "another number of candidates"
    _check_percents(got.get("f1"))


def fits_parameters(original, mutilated, result, expected):
    """``evalb --prm``: every line names a parameter and has its values."""
    known = {"LABELED": 1, "CUTOFF_LEN": 1, "DELETE_LABEL": 1, "DELETE_LABEL_FOR_LENGTH": 1}
    known |= {"QUOTE_LABEL": 1, "EQ_LABEL": 2, "EQ_WORD": 2}
    for line in lines_of(mutilated):
        words = line.split()
        if not words or words[0].startswith("#") or words[0] in ("DEBUG", "MAX_ERROR"):
            continue
        assert known.get(words[0]) == len(words) - 1, f"{line[:40]!r} is no parameter"
        whole = words[0] not in ("LABELED", "CUTOFF_LEN") or words[1].isdecimal()
        assert whole, f"{line[:40]!r} is no number"


def fits_vectors(original, mutilated, result, expected):
    """A training with a file of embeddings: a header, and as many rows of as many numbers."""
    header, *rows = [line.rstrip().split(" ") for line in lines_of(mutilated)] or [[]]
    assert len(header) == 2, "no header"
    rows = [row for row in rows if row != [""]]
    assert len(rows) == int(header[0]), f"{len(rows)} rows, and the header says {header[0]}"
    for row in rows:
        assert len(row) == 9, "a row of another width"
        [_finite(number) for number in row[1:]]
    assert len({row[0] for row in rows}) == len(rows), "a word with two rows"


def fits_log(original, mutilated, result, expected):
    """``curves --json``: numbers that the log holds."""
    text = mutilated.decode("utf-8", "replace")
    (run,) = json.loads(result.out)["runs"].values()
    for epoch, perplexity in run["perplexity"].items():
        fits = 0 < perplexity < math.inf and epoch in text
        assert fits, f"epoch {epoch} has perplexity {perplexity}"


def fits_pieces(original, mutilated, result, expected):
    """A model of sentencepiece, which has no checksum: as long as before, so that nothing is missing."""
    assert len(mutilated) >= len(original), "a model that was cut off"


def fits_yaml(original, mutilated, result, expected):
    """fairseq-hydra-train with another configuration, which must be one."""
    try:
        found = yaml.safe_load(decoded(mutilated))
    except yaml.YAMLError as error:
        raise AssertionError(f"no YAML: {str(error)[:60]}") from None
    assert found != yaml.safe_load(decoded(original)), "another result for equal settings"
    assert isinstance(found, dict), "no mapping"


def fits_dictionary(original, mutilated, result, expected):
    """A dictionary without a checksum: a word and its count a line, no word twice."""
    rows, before = ([line.rpartition(" ") for line in lines_of(x)] for x in (mutilated, original))
    for word, _, count in rows:
        counted = word.strip() and re.fullmatch(r"[0-9]+", count.strip())
        assert counted, f"{word[:40]!r} is no word with its count"
    words = [word for word, *_ in rows]
    assert len(set(words)) == len(words), "a word twice"
    assert words != [word for word, *_ in before], "another result for equal words"


def fits_index(original, mutilated, result, expected):
    """An .idx without a checksum: nothing but the original's contents describes the .bin."""
    raise AssertionError("sizes or offsets that are not the data's")


def fits_tokens(vocabulary):
    """A .bin without a checksum, of 16-bit tokens: as long as before, other words of the vocabulary."""

    def fits(original, mutilated, result, expected):
        assert len(mutilated) == len(original), "another length than the index says"
        tokens = np.frombuffer(mutilated, dtype="<u2")
        assert tokens.max() < vocabulary, "tokens outside the dictionary"

    return fits


def _check_percents(value):
    """Every number in nested lists and dicts must be a score in percent."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            _check_percents(part)
    assert not isinstance(value, float) or -1e-6 <= value <= 100 + 1e-6, f"a score of {value}"
