"""The commands of preparation: what they print, where they write, how they end."""

import json
from pathlib import Path
from unittest.mock import Mock

import pytest
import toy_language
import toy_translation
import toy_trees
from conftest import doc


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """A folder of everything that can be prepared."""
    folder = tmp_path_factory.mktemp("of") / "raw"
    toy_language.write_corpus(folder, 300, 60, 60)
    toy_translation.write_corpus(folder, "copy", 60, 5, 5)
    toy_trees.write_corpus(folder, 30, 4, 4)
    return folder


# {command: (arguments before the folder, options, default destination)}
COMMANDS = {
    "prepare-lm": (["text"], [], "text"),
    "prepare-lm by bytes": (["text"], ["--unit", "byte"], "text"),
    "prepare-mt": (["src", "tgt"], ["--bpe", "none"], "raw.src-tgt"),
    "prepare-headline": ([], ["--merges", "10"], "raw"),
    "prepare-parsing": ([], ["--pairs"], "raw"),
}


@pytest.fixture(params=COMMANDS)
def command(request, raw, folder):
    """(name, its arguments, options, default destination), in a folder to work in."""
    before, options, default = COMMANDS[request.param]
    return request.param.split()[0], [*before, raw], options, f"data-bin/{default}"


def test_the_report_is_printed_in_lines_or_in_one_json_object(command, tmp_path):
    name, arguments, options, default = command
    program = name.replace("-", "_")
    lines = doc(name, *arguments, *options)[0].splitlines()
    assert lines[-1] == f"{program}: wrote {default}"
    assert all(line.startswith(f"{program}: ") for line in lines)
    report = [line.removeprefix(f"{program}: ") for line in lines[:-1]]
    assert (tmp_path / default / "prepare.log").read_text().splitlines() == report

    out, err = doc(name, *arguments, "other", *options, "--json")
    result = json.loads(out)
    assert result["destination"] == "other" and result["report"] == report
    assert [line for line in err.splitlines() if line.startswith(program)] == lines[:-1]
    for side in result.get("sides", {"": result}).values():
        assert side["types"] > 4 and list(side["splits"]) == ["train", "valid", "test"]
        assert all(x["tokens"] > x["sentences"] >= 4 for x in side["splits"].values())


@pytest.mark.parametrize(
    "error, status", [(KeyboardInterrupt(), 130), (OSError(28, "No space left on device"), 1)]
)
def test_an_unfinished_preparation_leaves_nothing(command, tmp_path, monkeypatch, error, status):
    name, arguments, options, default = command
    step = "raw_counts.write" if name == "prepare-lm" else "pipeline.count_split"
    monkeypatch.setattr(f"fairseq_doc.preparation.{step}", Mock(side_effect=error))
    err = doc(name, *arguments, *options, status=status)[1]
    assert status == 130 or "No space left on device" in err.splitlines()[-1]
    assert not list((tmp_path / default).parent.iterdir())


def test_a_closed_pipe_does_not_stop_the_preparation(command, tmp_path, monkeypatch):
    name, arguments, options, default = command
    closed = Mock(side_effect=BrokenPipeError)
    monkeypatch.setattr("fairseq_doc.cli.preparation_arguments.print", closed, raising=False)
    doc(name, *arguments, *options)
    assert (tmp_path / default / "prepare.log").exists()


def test_headlines_have_settings_of_their_own(raw, tmp_path):
    doc("prepare-headline", raw, tmp_path / "bin", "--merges", "10")
    settings = json.loads((tmp_path / "bin" / "settings.json").read_text())
    assert settings["joint"] and settings["tokenizer"] == "none"
    options = "--merges 10 --no-joint --train test --valid valid,train --test ../raw/test"
    doc("prepare-headline", raw, tmp_path / "apart", *options.split())
    assert (tmp_path / "apart" / "bpe.codes.src").exists()
    assert (tmp_path / "apart" / "valid1.src-tgt.src.bin").exists()


@pytest.mark.parametrize(
    "arguments, facts",
    [
        (["text"], ["prepare-lm text FOLDER", "no folder"]),
        (["enwik8"], ["prepare-lm enwik8 FILE", "no file"]),
        (["enwik8", "{raw}/train.txt"], ["the 100,000,000 bytes of enwik8", "--unit byte"]),
        (["pydoc", "raw", "bin"], ["pydoc [DESTDIR]", "raw bin"]),
        (["text", "{raw}/train.txt", "bin"], ["got a file; --split 90,5,5 cuts it in three"]),
        (["pydoc", "--split", "90,5,5"], ["expected the corpus text", "got pydoc"]),
    ],
)
def test_wrong_arguments_of_prepare_lm_are_refused(raw, folder, arguments, facts):
    words = [argument.format(raw=raw) for argument in arguments]
    err = doc("prepare-lm", *words, status=1)[1]
    assert all(fact.format(raw=raw) in err.splitlines()[-1] for fact in facts)
    assert not list(folder.iterdir())


@pytest.mark.usefixtures("folder")
def test_pydoc_needs_no_folder_and_drops_words_that_occur_once():
    for arguments, name, rarest in (([], "pydoc", 2), (["b", "--unit", "byte"], "b", 1)):
        result = json.loads(doc("prepare-lm", "pydoc", *arguments, "--json")[0])
        folder = Path(result["destination"])
        assert folder.name == name
        counts = [int(line.split()[-1]) for line in (folder / "dict.txt").read_text().splitlines()]
        assert min(counts) == rarest and result["types"] == len(counts) + 4
        assert result["splits"]["test"]["sentences"] == len(
            (folder / "text" / "test.txt").read_text().splitlines()
        )
