import pytest
from conftest import assert_refused, refusal, run

from fairseq_doc import checksums


@pytest.fixture
def data(tmp_path):
    """A folder of three files, two of them in its SHA256SUMS."""
    for name in ("dict.txt", "train.bin", "other"):
        (tmp_path / name).write_text(f"{name} as it was prepared\n")
    checksums.write(tmp_path, ["train.bin", "dict.txt"])
    return tmp_path


def test_files_as_they_were_prepared(data):
    for name in ("dict.txt", "train.bin", "other", "missing"):
        checksums.check(data / name)
    (data / "dict.txt").rename(data / "moved")
    assert "dict.txt is missing" in refusal(checksums.check, data / "dict.txt")
    names = [line.split()[1] for line in (data / checksums.NAME).read_text().splitlines()]
    assert names == ["dict.txt", "train.bin"]


def test_the_form_is_that_of_sha256sum(data):
    run(f"sha256sum --strict -c {checksums.NAME}", cwd=data)
    written = (data / checksums.NAME).read_text()
    assert run("sha256sum dict.txt train.bin", cwd=data) == written


def test_sums_with_other_line_ends_are_checked_too(data):
    """As git leaves them on Windows."""
    sums = data / checksums.NAME
    sums.write_bytes(sums.read_bytes().replace(b"\n", b"\r\n"))
    checksums.check(data / "dict.txt")
    (data / "dict.txt").write_text("other")
    assert "is damaged" in refusal(checksums.check, data / "dict.txt")


def test_a_file_that_changed(data):
    checksums.check(data / "train.bin")  # the second look is no shortcut for another file
    contents = (data / "train.bin").read_bytes()
    (data / "train.bin").write_bytes(contents[:-2] + b"x\n")
    error = refusal(checksums.check, data / "train.bin")
    assert error.startswith(f"{data}/train.bin is damaged or was changed after")
    assert "remove its line" in error
    lines = (data / checksums.NAME).read_text().splitlines(keepends=True)
    (data / checksums.NAME).write_text(lines[0])
    checksums.check(data / "train.bin")


@pytest.mark.parametrize("line", ["", "0123  train.bin", "Z" * 64 + "  train.bin"])
def test_sums_that_are_damaged(data, line):
    with open(data / checksums.NAME, "a") as file:
        file.write(f"{line}\n")
    assert_refused("SUMS: line 3: expected a SHA-256", checksums.check, data / "dict.txt")
