"""Tables of tokens, a token and its number a line, and the words of a dictionary they are.

A recogniser numbers its tokens in its own way. A model that is exported with the recogniser's table
takes and gives those numbers.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fairseq.data import Dictionary

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import text_lines

# What the end mark </s> is called in a table: the first of these that is there. The recogniser's
# blank is never scored by a language model, so its number is free where a table has no end mark.
END_MARKS = ("<sos/eos>", "</s>", "<blk>", "<blank>")


@dataclass(frozen=True)
class TokenTable:
    """Which word of a dictionary each token is.

    Attributes:
        words: the word of token 0, 1, ...
        end: the token of the end mark.
        unknown: tokens outside the dictionary, which are ``<unk>``.
        is_dictionary: every token is the word of its own number.
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
    """The tokens of a table in the order of their numbers.

    Raises:
        FairseqDocError: a line without a token and a number; numbers other than 0, 1, ..., each
            once.
    """
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
    """The words that tokens are; those outside the dictionary are ``<unk>``.

    Raises:
        FairseqDocError: no token for the end mark; most tokens are outside the dictionary, so the
            model was trained on other ones.
    """
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
