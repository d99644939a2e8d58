import pytest

from fairseq_doc.errors import FairseqDocError, first_usage_error, interruption, shown


def during(link, *errors):
    """The last of some errors, each raised ``from`` the one before (``__cause__``) or during it."""
    for before, error in zip(errors, errors[1:], strict=False):
        setattr(error, link, before)
    return errors[-1]


@pytest.mark.parametrize("link", ["__cause__", "__context__"])
def test_an_error_is_found_wherever_it_is_in_the_chain(link):
    usage, ctrl_c = FairseqDocError("--lr: expected 20; got x"), KeyboardInterrupt()
    for found, search in ((usage, first_usage_error), (ctrl_c, interruption)):
        assert search(found) is found
        error = during(link, found, Exception("Cannot load model parameters"), KeyError("model"))
        assert search(error) is found
        mixed = during("__cause__", during("__context__", found, Exception("")), KeyError(""))
        assert search(mixed) is found
    other = during(link, KeyError("model"), ValueError("no model"))
    assert first_usage_error(other) is interruption(other) is first_usage_error(None) is None


@pytest.mark.parametrize("code, is_interruption", [(2, False), (143, True)])
def test_only_a_signals_exit_is_an_interruption(code, is_interruption):
    """argparse exits too, and what is raised instead is to be printed."""
    try:
        try:
            raise SystemExit(code)
        except SystemExit:
            raise FairseqDocError("unknown option") from None
    except FairseqDocError as error:
        found = interruption(error)
    assert (found is not None) == is_interruption


@pytest.mark.parametrize(
    "text, quoted",
    [
        ("é\n\x1b[2J\ufeff", r"'é\n\x1b[2J\ufeff'"),
        ("x" * 80, f"'{'x' * 80}'"),
        ("x" * 81, f"'{'x' * 76}..."),
        ("\0" * 10_000_000, "'" + r"\x00" * 19 + "..."),
    ],
)
def test_input_is_quoted_on_one_short_line(text, quoted):
    assert shown(text) == quoted
