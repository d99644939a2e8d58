"""scripts/compare_seeds.py."""

import json
import math
import os
import sys

import pytest
from conftest import ROOT, refusal


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import compare_seeds

    return compare_seeds


@pytest.fixture
def models(tool, tmp_path, monkeypatch):
    """``models(name, seeds)``: folders with checkpoints, whose evaluation is a program that counts."""
    program = (
        f"import sys\nopen({str(tmp_path / 'calls')!r}, 'a').write('x')\n"
        "split = sys.argv[sys.argv.index('--gen-subset') + 1]\nif 'bad' in sys.argv[3]: sys.exit(1)\n"
        "print('{\"perplexity\": %s}' % {'valid': 90, 'test': 80}[split])\n"
    )
    monkeypatch.setattr(tool, "EVALUATE", [sys.executable, "-ISc", program])
    for data in (tmp_path, tmp_path / "other"):
        data.mkdir(exist_ok=True)
        for split in tool.SPLITS:
            (data / f"{split}.bin").touch()

    def make(name, seeds):
        for seed in range(seeds):
            folder = tmp_path / f"{name}-{seed}"
            folder.mkdir()
            (folder / "checkpoint_best.pt").touch()
        return f"{name}={tmp_path}/{name}-*"

    return make


def call(tool, monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["compare_seeds.py", *map(str, words)])
    tool.main()


def test_mean_deviation_and_distance(tool):
    found = {
        "one": {"valid": [100.0, 102.0], "test": [90.0, 92.0]},
        "two": {"valid": [100.0, 103.0, 106.0], "test": [85.0, 86.0, 87.0]},
        "three": {"valid": [7.0], "test": [93.0]},
    }
    header, _, *rows = tool.table(found)
    apart = -5 / math.sqrt((2 + 1) / 2)
    assert header.split("|")[5].strip() == "test, from one (in standard deviations)"
    assert rows == [
        "| one | 2 | 101.00 ± 1.41 | 91.00 ± 1.41 |  |",
        f"| two | 3 | 103.00 ± 3.00 | 86.00 ± 1.00 | -5.00 ({apart:+.1f}) |",
        "| three | 1 | 7.00 | 93.00 | +2.00 |",
    ]
    assert tool.distance([2.0, 2.0], [3.0, 3.0]) == "-1.00"


def test_a_figure_is_computed_once(tool, models, monkeypatch, capsys, tmp_path):
    names = [models("a", 2), models("b", 1)]
    for _ in range(2):
        call(tool, monkeypatch, tmp_path, *names)
        assert "| b | 1 | 90.00 | 80.00 | +0.00 |" in capsys.readouterr().out
        assert (tmp_path / "calls").read_text() == 6 * "x"
    kept = json.loads((tmp_path / "a-1" / "perplexity.test.json").read_text())
    assert kept == {"data": str(tmp_path), "perplexity": 80}
    later = (tmp_path / "b-0" / "perplexity.valid.json").stat().st_mtime + 5
    os.utime(tmp_path / "b-0" / "checkpoint_best.pt", (later, later))
    call(tool, monkeypatch, tmp_path, *names)
    assert (tmp_path / "calls").read_text() == 8 * "x"
    call(tool, monkeypatch, tmp_path / "other", *names)
    assert (tmp_path / "calls").read_text() == 14 * "x"
    os.utime(tmp_path / "other" / "test.bin", (later, later))
    call(tool, monkeypatch, tmp_path / "other", names[0])
    assert (tmp_path / "calls").read_text() == 16 * "x"


@pytest.mark.parametrize("damaged", ["", '{"data": ', "[1]", "{}", '{"data": "DATA"}'])
def test_a_damaged_figure_is_computed_again(tool, models, monkeypatch, capsys, tmp_path, damaged):
    name = models("a [new]", 1).replace("*", "0")
    file = tmp_path / "a [new]-0" / "perplexity.test.json"
    file.write_text(damaged.replace("DATA", str(tmp_path)))
    call(tool, monkeypatch, tmp_path, name)
    assert "| 90.00 | 80.00 |" in capsys.readouterr().out
    assert (tmp_path / "calls").read_text() == "xx" and json.loads(file.read_text())


def test_what_is_refused(tool, models, monkeypatch, tmp_path):
    bad = models("bad", 1)
    for words, message in (
        ((tmp_path / "data", "a=b"), "there is no"),
        ((tmp_path, "a"), "expected NAME=FOLDERS; got a"),
        ((tmp_path, f"a={tmp_path}/x*"), "expected folders with a checkpoint_best.pt"),
        ((tmp_path, bad, bad), "expected names that differ; got bad twice"),
        ((tmp_path, bad), "the evaluation failed"),
    ):
        with pytest.raises(SystemExit, match=f"compare_seeds: error: .*{message}"):
            call(tool, monkeypatch, *words)
    assert not (tmp_path / "bad-0" / "perplexity.valid.json").exists()
    assert "got none" in refusal(tool.folders_of, f"{tmp_path}/nothing*")


def test_several_patterns(tool, models, tmp_path):
    models("a", 2)
    models("b", 1)
    found = tool.folders_of(f"{tmp_path}/b-0:{tmp_path}/a-*:{tmp_path}/a-1")
    assert [folder.name for folder in found] == ["a-0", "a-1", "b-0"]
