"""The tests of harm find harm: commands that do each wrong thing with a mutilated file are found out."""

import pytest
from harm import oracles
from harm.campaign import Campaign
from harm.targets import Target

GOOD = b"3 1 4\n"
READ = """import os, subprocess, sys
if open('file', 'rb').read() == b'3 1 4\\n':
    print('3 1 4')
    sys.exit()
"""
ERROR = "sys.stderr.write('python: error: the file is damaged\\n'); sys.exit(1)"
WRONG = {  # what a command does with any other file: what is said of it
    "print('5 1 4')": "another result",
    "sys.exit(1)": "without a word",
    "raise KeyError('x')": "a traceback",
    "sys.stderr.write('it is damaged\\n'); sys.exit(1)": "no error of ours",
    "sys.stderr.write('python: error: out of memory\\n'); sys.exit(1)": "blames the memory",
    "sys.stderr.write('python: error: \\x1b\\n'); sys.exit(1)": "control characters",
    "sys.stderr.write('python: error: ' + 'x' * 9000 + '\\n'); sys.exit(1)": "9,015 characters",
    "os.kill(os.getpid(), 11)": "signal 11",
    "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 2))\nwhile True: pass": "hung",
    f"x = b'x' * 500_000_000; {ERROR}": "GB of memory",
    f"subprocess.Popen(['sleep', '30']); {ERROR}": "left processes",
    f"open('half', 'w'); {ERROR}": "left half",
    f"open('other', 'a').write('x'); {ERROR}": "changed or removed other",
    f"os.remove('file'); {ERROR}": "changed or removed file",
    f"class A:\n    def __del__(self): raise OSError\nA()\n{ERROR}": "a traceback",
}


@pytest.fixture
def judged(server, tmp_path):
    """Python that reads the file -> what is wrong with it."""
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    (inputs / "file").write_bytes(GOOD)
    (inputs / "other").write_text("an input too\n")
    campaign = Campaign(server, inputs, tmp_path)

    def judge(code):
        words = ("python", "-c", READ + code)
        target = Target("file", words, oracles.never, lambda result, _: result.out)
        return campaign.judge(target, [["number", 0, 0]])

    return judge


@pytest.mark.parametrize("code", WRONG)
def test_what_is_wrong_is_found(code, judged, monkeypatch):
    monkeypatch.setattr(oracles, "MEMORY", 6 * 10**8)
    with pytest.raises(pytest.fail.Exception, match=WRONG[code]):
        judged(code)


def test_what_is_right_is_not(judged):
    assert judged(ERROR) == "refused"
    assert judged("print('3 1 4')") == "right result"


@pytest.mark.parametrize(
    "read, good, bad",
    [
        (oracles.lines_of, b"\xef\xbb\xbfa b\n", [b"\xff\xfea\0", b"a \xff", b"\x1f\x8b\x08\x00"]),
        (oracles.tokens_of_trees, b"(S (NP a)) (S b)", [b"(S (NP a)", b"(S a))", b"a (S b)"]),
        (
            oracles.lists_of,
            b"2 0\n-1\t(S a)\n-2\t(S a)\n",
            [b"3 0\n-1\t(S a)\n-2\t(S a)\n", b"2 0\n-1\t(S a)\nnan\t(S a)\n", b"x\n", b"1 0\n-1 (S a)\n"],
        ),
        (
            oracles.generated_of,
            b"S-0\ta\nH-0\t-1\tb\nP-0\t-1 -2\n",
            [b"H-1\t-1\tb\n", b"S-0\ta\nH-0\t-1\n", b"H-0\t-1\tb\nP-0\tx\n", b""],
        ),
    ],
)  # fmt: skip
def test_the_readers_tell_a_meaning_from_none(read, good, bad):
    assert read(good)
    for data in bad:
        with pytest.raises(AssertionError):
            read(data)


def test_a_dictionary_an_embedding_file_and_parameters():
    def wrong(fits, good, bad):
        return oracles.wrong(fits, good, bad, None, None)

    good = b"a 3\nb 2\n"
    for bad in (b"a 3\nb\n", b"a 3\na 2\n", b"a 3\nb x\n", b"a 3\nb 2\n\n", b"a 5\nb 2\n"):
        assert wrong(oracles.fits_dictionary, good, bad)
    assert not wrong(oracles.fits_dictionary, good, b"a 3\nc 2\n")
    row = " ".join(["0.1"] * 8)
    good = f"2 8\na {row}\nb {row}\n".encode()
    for bad in (good.replace(b"2 8", b"3 8"), good.replace(b"b", b"a"), good[: -len("0.1\n")]):
        assert wrong(oracles.fits_vectors, good, bad)
    assert not wrong(oracles.fits_vectors, good, good.replace(b"b", b"c"))
    assert wrong(oracles.fits_parameters, b"", b"LABELED one\n")
    assert wrong(oracles.fits_parameters, b"", b"DELETE_LABEL\n")
    assert not wrong(oracles.fits_parameters, b"", b"DELETE_LABEL TOP\n# x\n")
