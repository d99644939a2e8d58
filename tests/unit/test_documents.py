"""What the documents refer to exists, and what is generated in them is not stale."""

import functools
import importlib.util
import re

import pytest
from conftest import ROOT
from fairseq import options

import fairseq_doc
from fairseq_doc.analysis.learning_curves import band_of, departures, read_reference

PAGES = [
    path
    for path in sorted(ROOT.rglob("*.md"))
    if not {".venv", "build", "dist", "checkpoints"} & set(path.relative_to(ROOT).parts)
    and not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
]
NAMES = [str(path.relative_to(ROOT)) for path in PAGES]
# Options of programs that are neither fairseq's nor ours: pip, pre-commit, hydra, torchrun, srun.
FOREIGN = """--editable --hook-type --config-dir --config-name --nproc-per-node --no-python --nnodes
    --rdzv-backend --rdzv-endpoint --nodes --ntasks --cpus-per-task --no-deps --upgrade
    --force-reinstall --hypothesis-show-statistics --no-build-isolation""".split()
REMOVED = ["--component-threshold"]  # which the documents still name


@functools.cache
def script(name):
    """A module of ``scripts/``."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FOLDERS = "|".join(path.parent.name for path in ROOT.glob("fairseq_doc/*/__init__.py"))


def without_blocks(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(path):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", without_blocks(path.read_text()), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_one_version():
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## \[([\d.]+)\]", changes, re.MULTILINE)[0] == fairseq_doc.__version__
    assert f"\nversion: {fairseq_doc.__version__}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.parametrize("path", PAGES, ids=NAMES)
def test_links_lead_somewhere(path):
    for link in re.findall(r"\]\(([^)\s]+)\)", without_blocks(path.read_text())):
        if link.startswith(("https://", "http://")):
            continue
        file, _, anchor = link.partition("#")
        place = (path.parent / file).resolve() if file else path
        assert place.exists(), link
        assert not anchor or anchor in anchors(place), link


@pytest.mark.parametrize(
    "path",
    sorted(ROOT.glob("examples/*/reference/**/*.json")),
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_reference_curves_are_inside_their_own_band(path):
    seeds = read_reference(path)
    band = band_of(seeds)
    assert band
    for seed in seeds:
        assert departures(seed, band) == ([], len(band))


def test_every_file_named_in_the_documents_exists():
    """Files of the package are named from its folder on, scripts and examples from the root on."""
    for path in PAGES:
        if path.name == "CHANGELOG.md":  # names what is gone, too
            continue
        for word in re.findall(r"[\w/.-]+", path.read_text()):
            if re.fullmatch(r"(scripts|examples|tests|docs)/[\w/]+\.\w+", word):
                assert (ROOT / word).exists() or (path.parent / word).exists(), word
            if re.fullmatch(rf"({FOLDERS})/\w+\.py", word):
                assert (ROOT / "fairseq_doc" / word).exists() or "NAME" in word, word


def fairseq_options(monkeypatch):
    """Every option of fairseq's commands with this package's parts, and with those that the
    documents use."""
    monkeypatch.setattr("sys.argv", ["fairseq-train"])  # fairseq looks for --user-dir here
    parsers = [
        options.get_preprocessing_parser(),
        options.get_interactive_generation_parser(),
        options.get_eval_lm_parser(),
    ]
    ours = "--criterion doc_cross_entropy".split()
    for parts in (
        "--task bptt_language_modeling --arch lstm_doc_lm --optimizer nt_asgd --lr-scheduler nt_asgd",
        "--task bptt_language_modeling --arch lstm_melis_lm --optimizer adam --lr-scheduler plateau",
        "--task bptt_language_modeling --arch lstm_doc_lm --optimizer adam --lr-scheduler polynomial_decay",
        "--task translation --arch lstm_luong_doc --optimizer adam --lr-scheduler fixed",
        "--task translation --arch lstm_luong_wmt_en_de --optimizer sgd --lr-scheduler fixed",
    ):
        parser = options.get_training_parser()
        options.parse_args_and_arch(parser, ["data", *parts.split(), *ours])
        parsers.append(parser)
    return {name for parser in parsers for name in parser._option_string_actions}


def test_commands_and_options_named_in_the_documents_exist(monkeypatch):
    commands = dict(script("make_options").commands())
    known = fairseq_options(monkeypatch) | {*FOREIGN, *REMOVED, "--version"}
    for parser in commands.values():
        known |= set(parser._option_string_actions)
    benchmark = script("benchmark")
    for name in benchmark.SUBCOMMANDS:
        module = benchmark.make_parser([name])._subparsers._group_actions[0].choices[name]
        known |= set(module._option_string_actions)
    for path in [*ROOT.glob("scripts/*.py"), *ROOT.glob("examples/*/*.py")]:
        known |= set(re.findall(r'"(--[a-z-]+)"', path.read_text()))
    unknown = []
    for path, name in zip(PAGES, NAMES, strict=True):
        text = path.read_text()
        typed = re.findall(r"fairseq-doc ([a-z][a-z-]*)\b(?! commands)", text)
        unknown += [f"{name}: fairseq-doc {command}" for command in set(typed) - commands.keys()]
        without_arrows = re.sub(r"--[a-z-]+-->", "", text)  # of diagrams
        typed = re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", without_arrows)
        unknown += [f"{name}: {option}" for option in set(typed) - known]
    assert not unknown


def test_the_options_page_is_what_the_code_says_and_a_stale_one_is_reported(
    tmp_path, monkeypatch, capsys
):
    module = script("make_options")
    assert module.main(["--check"]) == 0, capsys.readouterr().err
    monkeypatch.setattr(module, "PAGE", tmp_path / "page")
    assert module.main(["--check"]) == 1
    assert "run python scripts/make_options.py" in capsys.readouterr().err
    assert module.main([]) == 0 and module.main(["--check"]) == 0
