"""The commands of README and ``docs/``, at a small size and on toy data.

The blocks of a page run in one shell, in a folder that looks like a checkout. The programs that they
call are found first as shims, which add the small size to forks of one process, which saves the seconds of
their imports. ```` ```sh no-test ```` marks a block that is not run: published sizes, benchmarks, whole
installations.
"""

import json
import os
import re
import shlex
from types import SimpleNamespace

import pytest
import toy_language
import toy_translation
import toy_trees
from conftest import BIN, ROOT, evaluated, shim, start

SMALL = (
    "--decoder-embed-dim 16 --layer-dims 24,24,20 --doc-components 0,0,1,2 --max-update 3 --cpu "
    "--batch-size 4"
)
SMALL_TRANSLATION = (
    "--encoder-embed-dim 16 --decoder-embed-dim 16 --hidden-size 12 --max-update 3 --cpu "
    "--warmup-updates 0 --batch-size 32"
)
SMALL_MELIS = "--num-params 8000 --updates-per-epoch 2 --max-checks 2 --batch-size 4 --cpu"
SHIMS = {
    "fairseq-train": f"""
case " $* " in
  *" --task translation "*) set -- "$@" {SMALL_TRANSLATION} ;;
  *" lstm_melis_lm "*) set -- "$@" {SMALL_MELIS} ;;
  *) set -- "$@" {SMALL} ;;
esac""",
    # A toy corpus has no published counts, and few pairs of letters to merge. Two trials are tuned.
    "fairseq-doc": f"""
case "$*" in
  tune*--trials*)
    for word; do
      shift
      case $word in 60) word=2 ;; fairseq-train) word=$PROGRAMS/fairseq-train ;; esac
      set -- "$@" "$word"
    done
    set -- "$@" {SMALL} ;;
esac
case $1 in
  prepare-lm) shift 2; set -- prepare-lm text "$@" ;;
  prepare-mt | prepare-headline) set -- "$@" --merges 18 ;;
esac""",
}
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
RUN, NOT_RUN = "sh", "sh no-test"


def blocks(path, kind):
    """The blocks of a page whose fence says ``kind``."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", path.read_text(), flags=re.DOTALL | re.MULTILINE)


def write_pairs(folder, names, sides):
    """Three splits of a toy task under other names."""
    toy_translation.write_corpus(folder, "copy", 200, 20, 20)
    for split, name in zip(("train", "valid", "test"), names, strict=True):
        for side, language in zip(("src", "tgt"), sides, strict=True):
            (folder / f"{split}.{side}").rename(folder / f"{name}.{language}")


def write_data_sets(folder):
    """Toy data under the names of the real sets; the lists are gzip or not, whatever their name."""
    toy_language.write_corpus(folder / "ptb", train=4_000, valid=1_000, test=1_000)
    names = ("train", "val", "test_2016_flickr")
    write_pairs(folder / "multi30k", names, ("en", "de"))
    write_pairs(folder / "debian_headline", ("train", "valid", "test"), ("src", "tgt"))
    write_stories(folder / "natural_stories")
    toy_trees.write_corpus(folder / "wsj_sample", train=150, dev=12, test=12)
    (folder / "wsj_sample" / "dev.nbest").rename(folder / "wsj_sample" / "dev.nbest.gz")


def write_stories(folder):
    """Two stories in the form of Natural Stories, each time as its word's length says."""
    folder.mkdir()
    words = ["word\tzone\titem"]
    times = ["word\tzone\titem\tmeanItemRT"]
    for item in (1, 2):
        for zone in range(1, 31):
            word = f"w{zone * item % 4}{'.' if zone % 5 == 0 else ''}"
            words.append(f"{word}\t{zone}\t{item}")
            times.append(f"{word}\t{zone}\t{item}\t{300 + 10 * len(word) + zone % 3}")
    (folder / "all_stories.tok").write_text("\n".join(words) + "\n")
    (folder / "processed_wordinfo.tsv").write_text("\n".join(times) + "\n")


@pytest.fixture(scope="module")
def checkout(server, tmp_path_factory):
    """A folder that looks like a checkout, with the shims and toy data; ``shell(text)`` runs text there
    and returns its output. README's blocks have run in it: other pages use its model."""
    folder = tmp_path_factory.mktemp("a checkout")
    for name in ("scripts", "examples", "fairseq_doc"):
        (folder / name).symlink_to(ROOT / name)
    activate = folder / ".venv" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    activate.touch()
    shims = tmp_path_factory.mktemp("shims")
    for program, addition in SHIMS.items():
        shim(shims, program, f'{addition}\nexec "$PROGRAMS/{program}" "$@"')
    data = tmp_path_factory.mktemp("data")
    write_data_sets(data)
    places = {
        "FAIRSEQ_DOC_DATA": str(data),
        "PATH": f"{shims}:{server.programs}:{BIN}:{os.environ['PATH']}",
        "CUDA_VISIBLE_DEVICES": "",
    }

    def shell(text, programs=server.programs):
        bash = ["bash", "-e", "-o", "pipefail", "-c", text]
        process = start(bash, cwd=folder, PROGRAMS=str(programs), **places)
        output, _ = process.communicate(timeout=1200)  # up to eighteen programs on a busy machine
        assert process.returncode == 0, f"{text}\n{output[-3000:]}"
        return output

    readme = shell("\n".join(blocks(ROOT / "README.md", RUN)))
    return SimpleNamespace(folder=folder, shell=shell, data=data, readme=readme, ran={})


@pytest.fixture
def ran(checkout):
    """``ran(page)``: the output of a page's blocks, run once."""

    def output_of(page):
        if page not in checkout.ran:
            text = "\n".join(blocks(page, RUN))
            checkout.ran[page] = checkout.readme if page == PAGES[0] else checkout.shell(text)
        return checkout.ran[page]

    return output_of


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, RUN)], ids=lambda page: page.name
)
def test_the_commands_of_a_page_run(page, ran):
    ran(page)


def test_the_forked_programs_end_as_others_do(checkout):
    text = "echo a | fairseq-doc score data-bin/ptb --path no.pt > out || status=$?; wc -c out; echo $status"
    with_fork, without = checkout.shell(text), checkout.shell(text, BIN)
    assert with_fork == without and with_fork.endswith("1\n") and "no.pt" in with_fork


def test_readme_trains_evaluates_and_uses_a_model(checkout):
    assert evaluated(checkout.readme)[2] > 900
    assert "the company" in checkout.readme
    code = "\n".join(blocks(ROOT / "README.md", "python"))
    output = checkout.shell(f"{BIN}/python -c {shlex.quote(code)}")
    assert len(re.findall(r"^-\d+\.\d+$", output, re.MULTILINE)) == 2


def test_the_published_size_is_trained_by_one_command_which_resumes(checkout):
    command = "DIR=two examples/penn_treebank/two_cores.sh doc 2"
    for output in (checkout.shell(command), checkout.shell(command)):
        assert "valid: perplexity" in output and "test: perplexity" in output
    log = (checkout.folder / "two" / "two_cores_doc_2" / "train.log").read_text()
    assert re.search(r"checkpoint_last.pt \(epoch \d @ 3 updates\)", log)
    command = "DATA=data-bin/ptb examples/wikitext2/two_cores.sh doc 1"
    assert "test: perplexity" in checkout.shell(command)
    assert (checkout.folder / "checkpoints" / "two_cores_doc_1_wikitext2").is_dir()


def test_the_methods_from_python_are_those_of_the_page(checkout):
    """The Python of docs/analysis.md, with README's model."""
    (block,) = blocks(ROOT / "docs" / "analysis.md", "python")
    output = checkout.shell(f"{BIN}/python -c {shlex.quote(block)}")
    assert "the company" in output and "surprisal=" in output


def test_an_exported_model_gives_the_score_of_the_package(checkout, ran):
    """The Python of docs/export.md, which runs after its commands."""
    ran(ROOT / "docs" / "export.md")
    (block,) = blocks(ROOT / "docs" / "export.md", "python")
    found = float(checkout.shell(f"{BIN}/python -c {shlex.quote(block)}").splitlines()[-1])
    scored = checkout.shell(
        "echo the company said it will | fairseq-doc score data-bin/ptb --no-progress-bar "
        "--path checkpoints/ptb_small/checkpoint_best.pt --cpu --json"
    )
    assert found == pytest.approx(json.loads(scored.splitlines()[-1])["log_prob"], abs=1e-4)


def test_reading_times_are_explained_by_two_systems(checkout):
    """The stories of docs/surprisals.md, with README's model for both systems."""
    (block,) = blocks(ROOT / "docs" / "surprisals.md", NOT_RUN)
    for name, toy in (
        ("data-bin/wiki", "data-bin/ptb"),
        ("checkpoints/$system/", "checkpoints/ptb_small/"),
        ("wiki/train.txt", '"$FAIRSEQ_DOC_DATA/ptb/train.txt"'),
        ("--tsv", "--tsv --cpu --no-progress-bar"),
        ("python ", f"{BIN}/python "),
    ):
        assert name in block
        block = block.replace(name, toy)
    head, _, *systems, _ = checkout.shell(block).splitlines()[-5:]
    assert re.match(r"\d+ of 60 words", head)
    softmax, doc = (line.split() for line in systems)
    assert (softmax[0], doc[0]) == ("softmax", "doc") and softmax[1:] == doc[1:]


def test_the_pages_give_what_they_promise(checkout, ran):
    ran(ROOT / "docs" / "analysis.md")
    translation = ran(ROOT / "docs" / "translation.md")
    assert "nrefs:1" in translation and "D-0\t" in translation
    assert re.search(r"ROUGE-?L", ran(ROOT / "docs" / "headlines.md"), flags=re.IGNORECASE)
    for picture in ("weights.png", "curves.png", "attention.png"):
        assert (checkout.folder / picture).stat().st_size > 1000
    parsing = ran(ROOT / "docs" / "parsing.md")
    assert len((checkout.folder / "test.best").read_text().splitlines()) == 12
    assert len(re.findall(r"^rerank: \S+test.nbest, weight [\d.]+:$", parsing, re.MULTILINE)) == 2


def test_a_block_that_is_not_run_says_so():
    fences = {
        match[1]
        for page in [*PAGES, ROOT / "CONTRIBUTING.md", *ROOT.glob("examples/*/README.md")]
        for match in re.finditer(
            r"^```([^\n]*)\n.*?^```$", page.read_text(), re.DOTALL | re.MULTILINE
        )
    }
    assert fences <= {RUN, NOT_RUN, "python", ""}
