import multiprocessing
import os
from dataclasses import dataclass

import pytest
from conftest import assert_refused

from fairseq_doc import checksums
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.preparation.stages import (
    check_destination,
    make_stamp,
    read_settings,
    staged,
)

from .conftest import contents


@dataclass(frozen=True)
class Settings:
    size: int
    folder: str = "anywhere"


STAMP = make_stamp(Settings, Settings(1), {}, {"tool": "1.0"})


def writing(name, text, error=None):
    """A stage that writes a file, then raises the error."""

    def stage(folder):
        (folder / name).write_text(text)
        yield f"wrote {name}"
        if error:
            raise error

    return stage


write_a, write_b = writing("a", "first"), writing("b", "second")


def attempt(tmp_path, second, stamp=STAMP):
    """Make tmp_path/dest in two stages; what was reported."""
    said = []
    with staged(tmp_path / "dest", stamp, said.append) as stages:
        first = stages.run("first", write_a)
        data = stages.run("second", second)
        stages.finish(data, tmp_path / "dest", [first / "a", first])
    return said


WHOLE = {
    "dest": False,
    "dest/a": b"first",
    "dest/b": b"second",
    "dest/first": False,
    "dest/first/a": b"first",
    "dest/prepare.log": b"wrote a\nwrote b\n",
}


def test_the_last_stage_with_copies_and_the_report_becomes_the_destination(tmp_path):
    assert attempt(tmp_path, write_b) == ["wrote a", "wrote b"]
    assert contents(tmp_path) == WHOLE


def test_copies_get_checksums_beside_those_of_the_data(tmp_path):
    def with_sums(folder):
        yield from write_b(folder)
        checksums.write(folder, ["b"])

    attempt(tmp_path, with_sums)
    listed = (tmp_path / "dest" / "SHA256SUMS").read_text().splitlines()
    assert [line.split()[1] for line in listed] == ["a", "b"]
    (tmp_path / "dest" / "a").write_text("other")
    assert_refused("dest/a is damaged", checksums.check, tmp_path / "dest" / "a")


def test_settings_that_are_there_and_cannot_be_read_are_refused(tmp_path):
    path = tmp_path / "settings.json"
    assert read_settings(tmp_path) is None
    for text in ("", '{"made by": {', "[]", '{"tokenizer": "moses"}', "\0"):
        path.write_text(text)
        assert_refused(f"{path}: expected the settings", read_settings, tmp_path)
    path.unlink()
    path.mkdir()
    assert_refused(f"{path}: expected a regular file; got a folder", read_settings, tmp_path)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("disk full"), ZeroDivisionError()])
def test_an_interrupted_preparation_goes_on(tmp_path, error):
    with pytest.raises(type(error)):
        attempt(tmp_path, writing("half", "written", error))
    assert not (tmp_path / "dest").exists()
    assert attempt(tmp_path, write_b) == ["first: already done", "wrote a", "wrote b"]
    assert contents(tmp_path) == WHOLE


def test_text_that_cannot_be_used_leaves_nothing(tmp_path):
    assert_refused(
        "bad text", attempt, tmp_path, writing("half", "written", FairseqDocError("bad text"))
    )
    assert contents(tmp_path) == {}


def test_the_stamp_depends_on_what_files_hold_and_not_on_where_they_are(tmp_path):
    for name, text in (("a", "x"), ("b", "x"), ("c", "y")):
        (tmp_path / name).write_text(text)
    a, b, c = (
        make_stamp(Settings, Settings(1, name), {"text": tmp_path / name}, {}) for name in "abc"
    )
    assert a == b != c


def test_two_at_once_are_refused(tmp_path):

    def refused():
        assert_refused("another preparation is running there", attempt, tmp_path, write_b)

    def meanwhile(folder):
        other = multiprocessing.get_context("fork").Process(target=refused)
        other.start()
        other.join()
        assert other.exitcode == 0
        yield from write_b(folder)

    attempt(tmp_path, meanwhile)
    assert (tmp_path / "dest" / "b").exists()


FOREIGN = {
    "text": {"thesis.txt": "mine"},
    "settings": {"thesis.txt": "mine", "settings.json": '{"mine": 1}'},
    "lock": {"lock": "mine"},
}


@pytest.mark.parametrize("kind", [*FOREIGN, "file", "link", "dead link"])
def test_what_we_did_not_make_stays_as_it_is(tmp_path, kind):
    part = tmp_path / "dest.part"
    if kind == "file":
        part.write_text("mine")
    elif "link" in kind:
        part.symlink_to(tmp_path if kind == "link" else "nowhere")
    else:
        part.mkdir()
        for name, text in FOREIGN[kind].items():
            (part / name).write_text(text)
    before = contents(tmp_path)
    assert_refused("expected nothing, or an unfinished preparation", attempt, tmp_path, write_b)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("make", [os.mkdir, lambda path: open(path, "w").close()])
def test_a_destination_that_exists_or_has_a_comma_is_refused(tmp_path, make):
    make(tmp_path / "dest")
    with pytest.raises(FairseqDocError, match="dest exists; remove it, or name another folder"):
        check_destination(tmp_path / "dest")
    assert_refused("without a comma", check_destination, tmp_path / "a,b")


def test_a_destination_that_came_meanwhile_is_kept(tmp_path):
    def meanwhile(folder):
        (tmp_path / "dest").mkdir()
        (tmp_path / "dest" / "mine").touch()
        yield from write_b(folder)

    with pytest.raises(OSError):
        attempt(tmp_path, meanwhile)
    assert contents(tmp_path / "dest") == {"mine": b""}


def test_a_destination_that_another_preparation_finished_first_leaves_nothing_else(tmp_path):
    attempt(tmp_path, write_b)
    assert_refused("dest exists", attempt, tmp_path, write_b)
    assert contents(tmp_path) == WHOLE


@pytest.mark.parametrize("left", [{".settings.json.x1.part": '{"si'}, {"lock": ""}, {}])
def test_a_preparation_that_was_killed_while_it_began_goes_on(tmp_path, left):
    part = tmp_path / "dest.part"
    part.mkdir()
    for name, text in left.items():
        (part / name).write_text(text)
    attempt(tmp_path, write_b)
    assert contents(tmp_path) == WHOLE


@pytest.mark.parametrize("killed", [False, True])
def test_other_settings_start_over(tmp_path, monkeypatch, killed):
    """And where that is killed, no stage that is half removed counts as finished."""
    with pytest.raises(KeyboardInterrupt):
        attempt(tmp_path, writing("half", "written", KeyboardInterrupt()))
    other = make_stamp(Settings, Settings(2), {}, {"tool": "1.0"})

    def kill(path, **options):
        next(path.iterdir()).unlink()
        raise KeyboardInterrupt

    if killed:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("shutil.rmtree", kill)
            attempt(tmp_path, write_b, other)
        attempt(tmp_path, write_b)  # with the first settings again
    else:
        said = attempt(tmp_path, write_b, other)
        assert "starting over" in said[0] and said[1:] == ["wrote a", "wrote b"]
    assert contents(tmp_path) == WHOLE
