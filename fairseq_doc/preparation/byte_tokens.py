"""Plain text <-> the words or bytes that are a language model's tokens.

A byte is named as in sentencepiece, such as ``<0x61>``; the line feed is the end mark ``</s>``.
"""

import re
from collections.abc import Iterable

from fairseq.data import Dictionary
from fairseq.tokenizer import tokenize_line

WORD, BYTE = UNITS = ("word", "byte")
END = "</s>"
LINE_FEED = 0x0A
NAMES = [END if byte == LINE_FEED else f"<0x{byte:02X}>" for byte in range(256)]
_BYTE_OF = {name: bytes([byte]) for byte, name in enumerate(NAMES)}
_REPLACEMENT = "\ufffd".encode()


def unit_of(dictionary: Dictionary) -> str:
    """``byte`` if every symbol but fairseq's own names a byte, else ``word``."""
    own = dictionary.symbols[dictionary.nspecial :]
    return BYTE if own and all(symbol in _BYTE_OF for symbol in own) else WORD


def tokens_of(text: str, unit: str) -> list[str]:
    """The tokens of plain text: its words between blanks, or its bytes in UTF-8, where a lone
    surrogate is any other byte (``surrogateescape``). ``unit``: one of ``UNITS``."""
    if unit == BYTE:
        return [NAMES[byte] for byte in text.encode("utf-8", "surrogateescape")]
    return tokenize_line(text)


def text_of(tokens: Iterable[str], unit: str) -> str:
    """The plain text of tokens; an end mark is a line feed. Bytes that are not UTF-8, and tokens
    that name no byte, become U+FFFD."""
    if unit == BYTE:
        data = b"".join(_BYTE_OF.get(token, _REPLACEMENT) for token in tokens)
        return data.decode("utf-8", "replace")
    return re.sub(" ?\n ?", "\n", " ".join("\n" if token == END else token for token in tokens))
