import re
import sys

import pytest
import torch

import fairseq_doc
from fairseq_doc import installation
from fairseq_doc.cli import version
from fairseq_doc.cli.main import main
from fairseq_doc.errors import FairseqDocError


def test_the_option_prints_one_screen(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    lines = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert caught.value.code == 0 and len(lines) <= 24
    assert lines["fairseq_doc"].startswith(fairseq_doc.__version__)
    assert lines["torch"].startswith(torch.__version__)
    assert re.fullmatch(r"\S+ 0\.12\.\S+, /.*fairseq", lines["fairseq"])
    assert re.match("(onednn|torch); bfloat16 is (not )?faster", lines["matrix products"])
    assert {"Python", "numpy", "processor", "GPU"} <= lines.keys() and "problem" not in lines


def test_without_torch_and_fairseq_it_says_what_is_missing(monkeypatch):
    def check():
        raise FairseqDocError("expected torch; got none")

    monkeypatch.setattr(installation, "check", check)
    monkeypatch.setattr(installation, "distributions_of", lambda package: [])
    monkeypatch.setattr(installation, "folder_of", lambda package: None)
    monkeypatch.setitem(sys.modules, "torch", None)
    rows = version.report()
    assert rows["fairseq"] == "no distribution, no package"
    assert re.search("; import of torch halted", rows["torch"])
    assert rows["problem"] == "expected torch; got none"
