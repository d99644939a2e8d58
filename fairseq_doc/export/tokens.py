"""Maps the tokens of a speech recogniser to the words of the dictionary.

A recogniser's table has a token and its number in each line. A model that is exported with a table
reads and predicts these numbers.
"""

import re
from dataclasses import dataclass

from fairseq.data import Dictionary

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import text_lines

LOG_PROBS, SENTENCE = FORMS = ("log-probs", "sentence")  # of an exported model, see model.py
# The first of these in a table is the end mark </s>. A language model never scores a recogniser's
# blank (as in CTC), so the blank can serve as the end mark.
END_MARKS = ("<sos/eos>", "</s>", "<blk>", "<blank>")


@dataclass(frozen=True)
class TokenTable:
    """The word of the dictionary for each token.

    Attributes:
        words: the index in the dictionary of token 0, 1, ...
        end: the token of the end mark.
        unknown: tokens outside the dictionary, which are mapped to ``<unk>``.
        is_dictionary: whether each token has the number of its word.
    """

    words: list[int]
    end: int
    unknown: list[str]
    is_dictionary: bool = False


def table_of(dictionary: Dictionary) -> TokenTable:
    """The table with the dictionary's own numbers."""
    return TokenTable(list(range(len(dictionary))), dictionary.eos(), [], is_dictionary=True)


def read_tokens(path: str) -> list[str]:
    """The tokens of a table, which must be numbered 0, 1, ... without gaps."""
    tokens: dict[int, str] = {}
    for number, line in enumerate(text_lines(path), start=1):
        found = re.fullmatch(r"(\S+)\s+(\d{1,9})\s*", line)
        if found is None or int(found[2]) in tokens:
            raise FairseqDocError(
                f"{path}: line {number}: expected a token and its own number; got {shown(line)}"
            )
        tokens[int(found[2])] = found[1]
    gaps = [number for number in range(len(tokens)) if number not in tokens]
    if gaps:
        raise FairseqDocError(f"{path}: expected tokens numbered 0, 1, ...; {gaps[0]} is missing")
    return [tokens[number] for number in range(len(tokens))]


def match_tokens(tokens: list[str], dictionary: Dictionary, path: str) -> TokenTable:
    """The words for the tokens, ``<unk>`` for those outside the dictionary. Raises
    ``FairseqDocError`` without a token for the end mark, or if most tokens are unknown, since the
    model was then trained on others."""
    mark = next((mark for mark in END_MARKS if mark in tokens), None)
    if mark is None:
        raise FairseqDocError(f"{path}: expected one of {', '.join(END_MARKS)}; got none")
    unknown = [token for token in tokens if token != mark and token not in dictionary]
    if 2 * len(unknown) > len(tokens):
        raise FairseqDocError(
            f"{path}: expected the tokens on which the model was trained; {len(unknown):,} of "
            f"{len(tokens):,} are not in its dictionary, such as {shown(unknown[-1])}"
        )
    end = tokens.index(mark)
    words = [dictionary.index(token) for token in tokens]
    words[end] = dictionary.eos()
    return TokenTable(words, end, unknown)
