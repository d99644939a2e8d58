import json
from dataclasses import dataclass

from conftest import assert_refused

from fairseq_doc import checksums
from fairseq_doc.preparation.data_folder import (
    check_destination,
    new_data_folder,
    read_settings,
    write_settings,
)

from .conftest import contents


def attempt(destination):
    """Make a data folder of one file and a folder; what was reported."""
    said = []
    with new_data_folder(destination, said.append) as (data, say):
        (data / "a").write_text("first")
        (data / "inside").mkdir()
        (data / "inside" / "b").write_text("second")
        (data.parent / "intermediate").mkdir()
        say("wrote a")
    return said


def test_a_folder_is_written_whole_with_its_report_and_checksums(tmp_path):
    assert attempt(tmp_path / "new" / "dest") == ["wrote a"]
    found = contents(tmp_path / "new")
    assert found.pop("dest/SHA256SUMS").split()[1::2] == [b"a"]
    assert found == {
        "dest": False,
        "dest/a": b"first",
        "dest/inside": False,
        "dest/inside/b": b"second",
        "dest/prepare.log": b"wrote a\n",
    }
    (tmp_path / "new" / "dest" / "a").write_text("other")
    assert_refused("dest/a is damaged", checksums.check, tmp_path / "new" / "dest" / "a")


def test_a_destination_that_exists_or_has_a_comma_is_refused(tmp_path):
    (tmp_path / "dest").mkdir()
    assert_refused("dest exists; remove it, or name another folder", attempt, tmp_path / "dest")
    assert list(contents(tmp_path)) == ["dest"]
    for name in ("a,b", "a:b"):
        assert_refused("without a comma or colon", check_destination, tmp_path / name)


@dataclass(frozen=True)
class Settings:
    size: int
    folder: str = "anywhere"


def test_settings_depend_on_what_files_hold_and_not_on_where_they_are(tmp_path):
    written = []
    for name, text in (("a", "x"), ("b", "x"), ("c", "y")):
        (tmp_path / name).mkdir()
        file = tmp_path / name / "text"
        file.write_text(text)
        tools = {"tool": "1.0"}
        write_settings(tmp_path / name, Settings, Settings(1, name), {"text": file}, tools)
        written.append((tmp_path / name / "settings.json").read_bytes())
    assert written[0] == written[1] != written[2]
    found = read_settings(tmp_path / "a")
    assert found == json.loads(written[0]) and found["size"] == 1 and "folder" not in found
    assert found["made by"]["tool"] == "1.0" and set(found["sha256"]) == {"text"}


def test_settings_of_another_program_are_refused(tmp_path):
    path = tmp_path / "settings.json"
    assert read_settings(tmp_path) is None
    path.write_text('{"tokenizer": "moses"}')
    assert_refused(f"{path}: expected the settings", read_settings, tmp_path)
