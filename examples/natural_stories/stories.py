"""Natural Stories (Futrell et al., 2021): all_stories.tok -> a text of each story, one sentence per line.

python examples/natural_stories/stories.py FOLDER_OF_THE_CORPUS NEW_FOLDER
"""

import csv
import re
import sys
from collections import defaultdict
from pathlib import Path

# The mark at a sentence's end, perhaps with a quote, before a capital; not that of Mr. and Dr.
SENTENCE_END = re.compile(r"((?:^| )(?!'?[MD]r\. )[^ ]*[.?!]'?) (?='?[A-Z])")


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a table with tabs; quotes are part of the words."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def read_words(corpus: Path) -> dict[int, list[str]]:
    """{story: its words, in their order}."""
    stories = defaultdict(list)
    for row in read_table(corpus / "all_stories.tok"):
        stories[int(row["item"])].append(row["word"])
    return dict(stories)


def main(corpus: Path, folder: Path) -> None:
    """Write the texts into a new folder."""
    stories = read_words(corpus)
    folder.mkdir(parents=True)
    for number, words in stories.items():
        lines = SENTENCE_END.sub(r"\1\n", " ".join(words))
        (folder / f"{number}.txt").write_text(f"{lines}\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("expected FOLDER_OF_THE_CORPUS NEW_FOLDER")
    try:
        main(*map(Path, sys.argv[1:]))
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
