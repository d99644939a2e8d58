"""What the tests of preparation share: files in, binarised lines out."""

import conftest
from fairseq.data import Dictionary, data_utils
from generated_text import write

WORDS = {
    "en": "A dog runs at Tom's well-known beach 3,500 (again) &".split(),
    "de": "Ein Hund läuft am größten U-Bahn-Hof entlang 3,5 (wieder) &".split(),
}


def sentence(number, side="de"):
    """A few words, others for every number."""
    words = [WORDS[side][(number * step + step) % 10] for step in range(1, 3 + number % 5)]
    return " ".join(words) + "."


def write_splits(folder, texts):
    """Write {split: its lines} into a new folder; the folder."""
    folder.mkdir()
    for split, lines in texts.items():
        write(folder / f"{split}.txt", lines)
    return folder


def dictionary_of(*symbols):
    dictionary = Dictionary()
    for symbol in symbols:
        dictionary.add_symbol(symbol)
    return dictionary


def made(prepare, settings, destination, **keywords):
    """(what was reported, the files) of a preparation."""
    said = []
    prepare(settings, destination, say=said.append, **keywords)
    assert not list(destination.parent.glob("*.part"))
    files = contents(destination)
    assert said == files["prepare.log"].decode().splitlines()
    return said, files


def lines_of(path):
    return path.read_text("utf-8").split("\n")[:-1]  # splitlines would cut at separators too


def contents(folder):
    """{path: the bytes of a file, False for a folder} of everything in a folder."""
    return {
        str(path.relative_to(folder)): path.is_file() and path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }


def binarised(prefix, dictionary):
    """The lines of a binarised file, without their end marks."""
    dictionary = Dictionary.load(str(dictionary))
    lines = data_utils.load_indexed_dataset(str(prefix), dictionary)
    assert all(line[-1] == dictionary.eos() for line in lines)
    return [dictionary.string(line) for line in lines]


def refusal_leaving(folder, prepare, *arguments, **settings):
    """The one-line error of a preparation that must fail and leave ``folder`` as it was."""
    before = contents(folder)
    message = conftest.refusal(prepare, *arguments, **settings)
    assert contents(folder) == before
    return message


def spoil(folder, files):
    """Replace the files of {name: bytes}, or remove those of None."""
    for name, content in files.items():
        (folder / name).unlink()
        if content is not None:
            (folder / name).write_bytes(content)
