"""fairseq-interactive reads its input as every other text.

fairseq prints a traceback for bytes that are not UTF-8, and keeps a byte order mark as text.
"""

import sys
from collections.abc import Iterator

from fairseq_doc.files import text_lines


def apply() -> None:
    """Replace the function that reads, if this process runs the command."""
    for name in ("fairseq_cli.interactive", "__main__"):
        module = sys.modules.get(name)
        if hasattr(module, "buffered_read"):
            vars(module)["buffered_read"] = read_in_buffers


def read_in_buffers(path: str, size: int) -> Iterator[list[str]]:
    """The lines of a file (``-``: standard input, as they come), ``size`` at a time."""
    buffer: list[str] = []
    for line in text_lines(path):
        buffer.append(line.strip())
        if len(buffer) >= size:
            yield buffer
            buffer = []
    if buffer:
        yield buffer
