"""A recogniser's table of tokens, a token and its number a line -> words of the dictionary.

A model that is exported with a table takes and gives the table's numbers.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fairseq.data import Dictionary

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import text_lines

# The first of these in a table is the end mark </s>. A language model never scores the recogniser's
# blank, so its number is free in a table without an end mark.
END_MARKS = ("<sos/eos>", "</s>", "<blk>", "<blank>")


@dataclass(frozen=True)
class TokenTable:
    """Which word of a dictionary each token is.

    Attributes:
        words: the word of token 0, 1, ...
        end: the token of the end mark.
        unknown: tokens outside the dictionary, which are ``<unk>``.
        is_dictionary: each token has its word's number.
    """

    words: list[int]
    end: int
    unknown: list[str]
    is_dictionary: bool = False


def table_of(dictionary: Dictionary) -> TokenTable:
    """The table of the dictionary's own numbers."""
    return TokenTable(list(range(len(dictionary))), dictionary.eos(), [], is_dictionary=True)


def table_lines(dictionary: Dictionary) -> Iterator[str]:
    """The lines of a file for :func:`table_of`."""
    return (f"{symbol} {number}" for number, symbol in enumerate(dictionary.symbols))


def read_tokens(path: str) -> list[str]:
    """The tokens of a table, which must be numbered 0, 1, ... each once."""
    tokens: dict[int, str] = {}
    for number, line in enumerate(text_lines(path), start=1):
        found = re.fullmatch(r"(\S+)\s+(\d{1,9})\s*", line)
        if found is None:
            raise FairseqDocError(
                f"{path}: line {number}: expected a token and its number; got {shown(line)}"
            )
        if int(found[2]) in tokens:
            raise FairseqDocError(
                f"{path}: line {number}: expected every number once; got {found[2]} again"
            )
        tokens[int(found[2])] = found[1]
    if sorted(tokens) != list(range(len(tokens))) or not tokens:
        raise FairseqDocError(
            f"{path}: expected tokens numbered 0, 1, ... without a gap; got {len(tokens):,} "
            f"tokens, the highest number {max(tokens, default=None)}"
        )
    return [tokens[number] for number in range(len(tokens))]


def match_tokens(tokens: list[str], dictionary: Dictionary, path: str) -> TokenTable:
    """The words that tokens are, ``<unk>`` outside the dictionary. Raises ``FairseqDocError``
    without a token for the end mark, or if most are unknown: the model was trained on others."""
    end = next((mark for mark in END_MARKS if mark in tokens), None)
    if end is None:
        raise FairseqDocError(f"{path}: expected one of {', '.join(END_MARKS)}; got none")
    unknown = [token for token in tokens if token != end and token not in dictionary]
    if 2 * len(unknown) > len(tokens):
        raise FairseqDocError(
            f"{path}: expected the tokens that the model was trained on; {len(unknown):,} of "
            f"{len(tokens):,} are not in its dictionary, such as {shown(unknown[-1])}"
        )
    place = tokens.index(end)
    words = [dictionary.index(token) for token in tokens]
    words[place] = dictionary.eos()
    return TokenTable(words, place, unknown)
