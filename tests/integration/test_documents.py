"""The commands of README, of ``docs/`` and of the examples, at a small size and on toy data.

The blocks of a page run in one shell, in a folder that looks like a checkout. The programs that they
call are found first as shims, which add the small size to forks of one process, which saves the seconds of
their imports. ```` ```sh no-test ```` marks a block that is not run: published sizes, benchmarks, whole
installations.
"""

import json
import os
import re
import shlex
import time
from itertools import pairwise
from types import SimpleNamespace

import pytest
import toy_language
import toy_translation
import toy_trees
from conftest import BIN, ROOT, evaluated, fail, run, start
from fairseq import options

from fairseq_doc.cli.main import make_parser
from fairseq_doc.tuning.systems import chosen_systems

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


def with_blocks(pages):
    return [page for page in pages if blocks(page, RUN)]


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


@pytest.mark.parametrize("page", with_blocks(PAGES), ids=lambda page: page.name)
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
    assert len(re.findall(r"-\d+\.\d+", output.splitlines()[-1])) == 2


def test_the_published_size_is_trained_by_one_command_which_resumes(checkout):
    command = "DIR=two examples/penn_treebank/two_cores.sh doc 2"
    for output in (checkout.shell(command), checkout.shell(command)):
        assert "valid: perplexity" in output and "test: perplexity" in output
    log = (checkout.folder / "two" / "two_cores_doc_2" / "train.log").read_text()
    assert re.search(r"checkpoint_last.pt \(epoch \d @ 3 updates\)", log)
    command = "DATA=data-bin/ptb examples/wikitext2/two_cores.sh doc 1"
    assert "test: perplexity" in checkout.shell(command)
    assert (checkout.folder / "checkpoints" / "wikitext2" / "two_cores_doc_1").is_dir()


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


# The examples

ECHO = 'for word in "$@"; do echo "$word"; done'


def shim(folder, program, text):
    """A program of that name that runs some lines of sh."""
    (folder / program).write_text(f"#!/bin/sh\n{text}\n")
    (folder / program).chmod(0o755)


def words_of(script, tmp_path, program="fairseq-train", **places):
    """The words that a script gives to a program of fairseq."""
    shim(tmp_path, program, ECHO)
    script = script if isinstance(script, list) else [script]
    return run(script, PATH=f"{tmp_path}:{os.environ['PATH']}", **places).splitlines()


def by_fairseq(words, monkeypatch):
    """The arguments that fairseq-train reads."""
    monkeypatch.setattr("sys.argv", ["fairseq-train", *words])  # fairseq looks for --user-dir here
    monkeypatch.chdir(ROOT)
    return options.parse_args_and_arch(options.get_training_parser(), input_args=words)


def compared(script, tmp_path, monkeypatch):
    """The systems of each comparison of a script, as ``fairseq-doc compare`` reads them."""
    monkeypatch.chdir(ROOT)
    words = words_of(script, tmp_path, "fairseq-doc")
    starts = [i for i, word in enumerate(words) if word in ("compare", "bleu")] + [len(words)]
    comparisons = []
    for first, end in pairwise(starts):
        make_parser(words[first]).parse_args(words[first:end])
        if words[first] != "compare":
            continue
        dashes = words.index("--", first)
        systems = [word for word in words[first:dashes] if "=" in word]
        comparisons.append(chosen_systems([], systems, words[dashes + 1 : end], print))
    return comparisons


def test_the_compared_systems_have_one_size_and_other_options_follow(tmp_path, monkeypatch):
    """Fine-tuned, from its own model, and with another lambda, a system is the same model."""
    scripts = ROOT / "examples" / "small_comparison"
    own = ["--seeds", "1", "--", "--max-epoch", "60"]
    [first], [tuned], [strengths] = (
        compared([scripts / script, "data", *folders, *own], tmp_path, monkeypatch)
        for script, *folders in (
            ["compare.sh", "first"],
            ["fine_tune.sh", "first", "second"],
            ["lambda.sh", "lambda"],
        )
    )
    words = 10_002
    doc2 = first["doc2"].args
    for name, system in [*first.items(), *tuned.items(), *strengths.items()]:
        args = system.args
        assert args.max_epoch == 60 and args.seed == 1
        widths = [args.decoder_embed_dim, *eval(args.layer_dims)]
        size = words * (widths[0] + 1)
        size += sum(4 * out * (inp + out + 2) for inp, out in pairwise(widths))
        counts = getattr(args, "doc_components", None)
        assert counts == getattr(first.get(name, first["doc2"]).args, "doc_components", None)
        if counts:
            size += sum(i * (d * 100 + 100) for i, d in zip(eval(counts), widths, strict=True))
            size += widths[-1] * sum(eval(counts))
        assert abs(size - 1.6e6) < 0.005e6, size
    for name, system in tuned.items():
        start = f"first/{name}-seed{{seed}}/checkpoints/checkpoint_best.pt"
        assert system.args.finetune_from_model == start and system.args.average_at == 1
    lambdas = [system.args.doc_lambda for system in strengths.values()]
    assert [*lambdas, doc2.doc_lambda] == [0, 0.01, 0.001]


EQUAL_TUNING = ROOT / "examples" / "equal_tuning"
SYSTEMS = ["lstm1", "lstm2", "rhn5", "nas1", "mos3", "doc3"]


def test_the_systems_of_equal_tuning_are_accepted_by_fairseq(tmp_path, monkeypatch):
    """Tuned, trained with the best settings, and averaged, with the same model."""
    studies = tmp_path / "the studies"
    for system in SYSTEMS:
        report = studies / system / "report"
        report.mkdir(parents=True)
        best = {"settings": {"lr": 0.004, "l2": 1e-6, "state-dropout": 0.25}}
        (report / "report.json").write_text(json.dumps({"best": best}))
    script = [EQUAL_TUNING / "compare.sh", "data", studies, *SYSTEMS]
    places = {"PATH": f"{tmp_path}:{BIN}:{os.environ['PATH']}"}
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")  # python
    best, averaged = compared(script, tmp_path, monkeypatch)
    for system in SYSTEMS:
        tune = [EQUAL_TUNING / "tune.sh", system, "data", studies]
        words = run(tune, **places).splitlines()
        words = words[words.index("fairseq-train") + 1 : words.index("tune", 1)]
        every = [by_fairseq(words, monkeypatch), best[system].args, averaged[system].args]
        for name in ("arch", "cell", "layers", "rhn_depth", "doc_components", "num_params", "bptt"):
            assert len({str(getattr(args, name, None)) for args in every}) == 1
        assert every[1].lr == [0.004] and not every[1].stop_above
        assert every[2].lr == [5.0] and every[2].state_dropout == 0.25
        assert every[2].finetune_from_model == str(
            studies / "tuned" / (system + "-seed{seed}") / "checkpoints" / "checkpoint_best.pt"
        )


def test_translation_refuses_what_it_cannot_do(tmp_path):
    scripts = ROOT / "examples" / "multi30k"
    data, raw = tmp_path / "a.en-de", tmp_path / "raw2"
    second = data / "test1.en-de.de.bin"
    compare = [scripts / "compare.sh", data, tmp_path, "raw1", raw]
    data.mkdir()
    for missing in (raw, second):
        assert f"expected {missing}, for the second test set; got no" in fail([*compare, "softmax"])
        missing.touch()
        assert "or an empty one" in fail([*compare, "softmax"])
        missing.write_text("Ein Haus .")
    for script in ([scripts / "tune.sh", "i9", data, tmp_path], [*compare, "i9"]):
        assert "expected fairseq, softmax, linear, i3 or i2i3; got i9" in fail(script)
    output = fail([*compare, "softmax"])
    assert f"expected {tmp_path}/softmax/report/report.json, which tune.sh softmax writes" in output
    report = tmp_path / "i3" / "report" / "report.json"
    report.parent.mkdir(parents=True)
    report.write_text('{"best": {"settings": {"lr": 0.01}}}')
    assert "linear has the settings of i3" in fail([*compare, "linear"])
    reverse = data.rename(tmp_path / "a.de-en")
    (reverse / "test1.de-en.en.bin").write_text("A house .")
    compare[1] = reverse
    table = tmp_path / "final.en-de" / "comparison.json"
    assert f"expected {table}, of the settings' choice on en-de" in fail([*compare, "i3"])
    table.parent.mkdir()
    table.write_text('{"systems": {"softmax.i3": {"valid": {"values": [3.0]}}}}')
    assert f"{table}: expected trainings of i3 on en-de that did" in fail([*compare, "i3"])
    table.write_text('{"systems": {"i3.softmax": {"valid": {"values": [3.0]}}}}')
    output = fail([*compare, "i3"])
    assert output.count("expected ") == 1 and output.startswith(
        f"expected {tmp_path}/softmax/report"
    )


def test_equal_tuning_refuses_what_it_cannot_do(tmp_path):
    for script in (
        ["tune.sh", "lstm9", "data", tmp_path],
        ["compare.sh", "data", tmp_path, "lstm9"],
    ):
        unknown = fail([EQUAL_TUNING / script[0], *script[1:]])
        assert "expected lstm1, lstm2, rhn5, nas1, mos3 or doc3; got lstm9" in unknown


def test_the_systems_of_translation_are_accepted_by_fairseq(tmp_path, monkeypatch):
    """Each tries the best settings of every study; ``linear`` is not tuned: it has those of ``i3``."""
    scripts, studies = ROOT / "examples" / "multi30k", tmp_path / "studies"
    names = ["fairseq", "softmax", "linear", "i3", "i2i3"]
    tuned = [name for name in names if name != "linear"]
    rates = dict(zip(tuned, (0.001, 0.002, 0.004, 0.005), strict=True))
    data, raw = tmp_path / "data.en-de", tmp_path / "raw2"
    data.mkdir()
    for file in (data / "test1.en-de.de.bin", raw):
        file.write_text("Ein Haus .")
    for name in tuned:
        report = studies / name / "report" / "report.json"
        report.parent.mkdir(parents=True)
        settings = {"lr": rates[name], "label-smoothing": 0.1}
        if name.startswith("i"):
            settings["doc-lambda"] = rates[name]
        report.write_text(json.dumps({"best": {"settings": settings}}))
        for other in names:  # the second test set's output, already there
            run_of_seed = studies / "final.en-de" / f"{other}.{name}-seed2"
            run_of_seed.mkdir(parents=True)
            (run_of_seed / "generate-test1.txt").touch()
    crossed = [f"{name}.{study}" for name in tuned for study in tuned]
    values = {name: 3.0 - 0.1 * name.endswith(".softmax") for name in crossed}
    values |= {"i3.i2i3": 2.5, "softmax.fairseq": 2.5}
    table = {name: {"seeds": [2], "valid": {"values": [value]}} for name, value in values.items()}
    (studies / "final.en-de" / "comparison.json").write_text(json.dumps({"systems": table}))
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")  # python
    script = [scripts / "compare.sh", data, studies, "raw1", raw, *names, "--workers", 2]
    every, finals = compared(script, tmp_path, monkeypatch)
    words = words_of(script, tmp_path, "fairseq-doc")
    assert words.count("--seeds") == 1 and words[words.index("--seeds") + 1] == "1"  # the first
    assert words.index("--seeds") < words.index("compare", 1)
    assert list(every) == crossed
    assert list(finals) == [
        "fairseq.softmax", "softmax.fairseq", "linear.i2i3", "i3.i2i3", "i2i3.softmax",
    ]  # fmt: skip
    for label, system in [*every.items(), *finals.items()]:
        name, study = label.split(".")
        assert system.args.lr == [rates[study]] and system.args.max_update == 7256
        assert system.args.label_smoothing == 0.1
        if name.startswith("i"):
            assert system.args.doc_lambda == rates[study if study.startswith("i") else name]
    other = tmp_path / "data.de-en"  # has the settings that were chosen for en-de
    other.mkdir()
    (other / "test1.de-en.en.bin").write_text("A house .")
    script[1] = other
    (studies / "final.de-en").symlink_to("final.en-de")
    (same,) = compared(script, tmp_path, monkeypatch)
    assert {name: system.args.lr for name, system in same.items()} == {
        name: system.args.lr for name, system in finals.items()
    }
    assert all(system.args.source_lang == "de" for system in same.values())
    for name in tuned:
        tune = [scripts / "tune.sh", name, data, studies]
        words = words_of(tune, tmp_path, "fairseq-doc")
        words = words[words.index("fairseq-train") + 1 : words.index("tune", 1)]
        args = by_fairseq(words, monkeypatch)
        assert (args.source_lang, args.target_lang, args.max_update) == ("en", "de", 1814)
        assert args.arch == every[f"{name}.{name}"].args.arch
        assert ("doc-lambda" in (studies / f"{name}.yaml").read_text()) == name.startswith("i")


@pytest.fixture
def beyond(tmp_path):
    """``beyond(*segments)``: the table of examples/beyond/evaluate.sh where eval-lm finds the same result
    each time, and the calls of eval-lm."""
    from fairseq_doc.adaptation.cache import CacheSettings
    from fairseq_doc.adaptation.dynamic import DynamicSettings
    from fairseq_doc.cli.eval_lm import _cache_as_json, _dynamic_as_json
    from fairseq_doc.evaluation.scorer import ScorerSettings

    settings = ScorerSettings(
        cache=CacheSettings(window=9, theta=0.5, share=0.25),
        dynamic=DynamicSettings(rate=3e-5, decay=0.002),
    )
    found = {"cache": _cache_as_json(settings), "dynamic": _dynamic_as_json(settings)}
    found |= {"perplexity": 97.531, "seconds": 12.3, "seconds_before": 4.4}
    found |= {"searched": {"theta 1": 99.0}, "at_ends": {"theta": "smallest"}}
    shim(tmp_path, "fairseq-doc", f"echo \"$@\" >> {tmp_path}/calls\necho '{json.dumps(found)}'")
    (tmp_path / "m.pt").touch()

    def evaluate(*segments):
        (tmp_path / "calls").write_text("")
        script = [ROOT / "examples/beyond/evaluate.sh", "m.pt", "data", *segments]
        table = run(script, cwd=tmp_path, PATH=f"{tmp_path}:{BIN}:{os.environ['PATH']}")
        calls = (tmp_path / "calls").read_text().splitlines()
        assert all(call.endswith(" --matmul-precision float32 --json") for call in calls)
        calls = [call.split("--gen-subset ")[1].partition(" --matmul")[0] for call in calls]
        return [line.strip("|").split("|") for line in table.splitlines()], calls

    return evaluate


def test_the_evaluation_beyond_the_paper_uses_what_its_searches_find(beyond):
    """Their results are those of eval-lm, read by their names."""
    rows, calls = beyond()
    names = ["static", "cache_dot", "cache_cosine", "dynamic5", "dynamic20"]
    assert [row[0].strip() for row in rows[2:]] == names
    settings = "window 9, similarity dot, theta 0.5 (the smallest tried), lambda 0.25"
    assert [cell.strip() for cell in rows[3][1:]] == [settings, "97.53", "97.53", "12", "4"]
    expected = ["valid", "test"]
    for similarity in ("dot", "cosine"):
        cache = f"--cache-window 2000 --cache-similarity {similarity}"
        expected += [f"valid {cache} --cache-search"]
        expected += [f"test {cache} --cache-theta 0.5 --cache-lambda 0.25"]
    for segment in (5, 20):
        dynamic = f"--dynamic --dynamic-segment {segment} --dynamic-statistics "
        dynamic += f"m.pt.beyond/dynamic{segment}.npz"
        expected += [f"valid {dynamic} --dynamic-search"]
        expected += [f"test {dynamic} --dynamic-rate 3e-05 --dynamic-decay 0.002"]
    assert calls == expected


def test_the_evaluation_beyond_the_paper_resumes(beyond, tmp_path):
    """Another call computes only what is missing or was computed with other weights."""
    table, calls = beyond()
    (tmp_path / "m.pt.beyond/cache_dot.test.json").unlink()
    statistics = tmp_path / "m.pt.beyond/dynamic5.npz"
    statistics.touch()
    again, made = beyond()
    assert again == table and len(made) == 1 and statistics.exists()
    later = time.time() + 60
    os.utime(tmp_path / "m.pt", (later, later))
    assert beyond("20")[0][5:] == table[6:] and statistics.exists()
    _, made = beyond()
    assert made == calls and not statistics.exists()  # which would be read


@pytest.mark.usefixtures("beyond")
def test_the_compared_models_are_evaluated_as_an_ensemble_and_seed_1_alone(tmp_path):
    """The rank, which takes minutes, is counted once."""
    models = [tmp_path / f"softmax-seed{n}/checkpoints/checkpoint_best.pt" for n in (1, 2)]
    for model in models:
        model.parent.mkdir(parents=True)
        model.touch()
    script = [ROOT / "examples/small_comparison/evaluate.sh", "data", tmp_path, "softmax"]
    for again in (False, True):
        (tmp_path / "calls").write_text("")
        output = run(script, cwd=tmp_path, PATH=f"{tmp_path}:{BIN}:{os.environ['PATH']}")
        calls = (tmp_path / "calls").read_text().splitlines()
        for split in ("valid", "test"):
            both = f"{models[0]}:{models[1]}"
            assert f"eval-lm data --path {both} --gen-subset {split}" in calls
        ranks = [call for call in calls if call.startswith("rank")]
        assert ranks == [f"rank data --path {models[0]} --gen-subset valid"] * (not again)
        assert "| dynamic20 |" in output and not any(call.startswith("weights") for call in calls)


@pytest.mark.parametrize("example", ["penn_treebank", "wikitext2", "wikitext103"])
def test_a_recipe_is_evaluated_where_it_was_saved(example, tmp_path, monkeypatch):
    recipe = ROOT / "examples" / example
    trained = words_of(recipe / "train.sh", tmp_path)
    words = words_of(recipe / "evaluate.sh", tmp_path, program="fairseq-eval-lm")
    saved = trained[trained.index("--save-dir") + 1]
    assert words.count(f"{saved}/checkpoint_best.pt") == 2 and words[0] == trained[0]
    monkeypatch.setattr("sys.argv", ["fairseq-eval-lm", *words])
    monkeypatch.chdir(ROOT)
    parser = options.get_eval_lm_parser(default_task="bptt_language_modeling")
    args = options.parse_args_and_arch(parser, input_args=words[: len(words) // 2])
    assert args.gen_subset == "valid" and "test" in words


@pytest.mark.parametrize(
    "example, command, score",
    [
        ("iwslt16", "bleu", "--lang de"),
        ("gigaword", "rouge", "--tokenized-reference --allow-unknown"),
    ],
)
def test_evaluation_translates_with_an_ensemble_and_scores(example, command, score, tmp_path):
    """Without the programs themselves, which the pages run."""
    shim(tmp_path, "fairseq-generate", ECHO)
    shim(tmp_path, "fairseq-doc", ECHO)
    model = "a model.pt:b.pt"
    for name in (*model.split(":"), "reference"):
        (tmp_path / name).touch()
    places = {"MODEL": model, "RAW": "reference", "OUT": "out.txt"}
    places["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    places |= {"SCORE": score} if command == "rouge" else {}
    evaluate = ROOT / "examples" / example / "evaluate.sh"
    scored = run([evaluate, "--cpu"], cwd=tmp_path, **places).splitlines()
    assert scored == [command, "out.txt", "--reference", "reference", *score.split()]
    generated = (tmp_path / "out.txt").read_text().splitlines()
    assert model in generated and generated[-1] == "--cpu"
    refusal = fail([evaluate], cwd=tmp_path, **places)
    assert "out.txt exists" in refusal and "OUT=" in refusal


@pytest.mark.parametrize("example", ["iwslt16", "gigaword"])
def test_evaluation_refuses_missing_files_before_any_work(example, tmp_path):
    evaluate = ROOT / "examples" / example / "evaluate.sh"
    trained = words_of(evaluate.parent / "train_plain.sh", tmp_path)
    saved = [word for before, word in pairwise(trained) if before == "--save-dir"][-1]
    reference = tmp_path / "reference"
    reference.touch()
    missing = fail([evaluate], cwd=tmp_path, RAW=str(reference), SYSTEM="plain")
    assert f"got no file {saved}/checkpoint_best.pt" in missing
    (tmp_path / "a.pt").touch()
    missing = fail([evaluate], cwd=tmp_path, RAW=str(reference), MODEL="a.pt:no such.pt")
    assert "got no file no such.pt" in missing
    assert "got no file nothing" in fail([evaluate], cwd=tmp_path, RAW="nothing", MODEL="a.pt")


def test_the_parsing_recipe_refuses_missing_and_existing_files(tmp_path):
    recipe = ROOT / "examples" / "parsing"
    (tmp_path / "a.pt").touch()
    (tmp_path / "dev.nbest").touch()
    exists = fail([recipe / "parse.sh"], cwd=tmp_path, MODEL="a.pt")
    assert "dev.nbest exists" in exists and "OUT=" in exists
    missing = fail([recipe / "parse.sh"], cwd=tmp_path, MODEL="no such.pt")
    assert "got no file no such.pt" in missing
    assert "TEST=LISTS" in fail([recipe / "rerank.sh"], cwd=tmp_path, MODEL="a.pt", DEV="dev.nbest")


def test_an_interrupted_parse_starts_over(tmp_path):
    """Half of a list of an earlier run does not count as a list."""
    recipe = ROOT / "examples" / "parsing"
    writes_its_output = 'while [ $# -gt 1 ]; do [ "$1" = --output ] && echo > "$2"; shift; done'
    for program in ("fairseq-generate", "fairseq-doc"):
        shim(tmp_path, program, writes_its_output)
    (tmp_path / "a.pt").touch()
    (tmp_path / "dev.nbest.part").write_text("(S (NP of a run that was interr")
    path = f"{tmp_path}:{os.environ['PATH']}"
    run([recipe / "parse.sh"], cwd=tmp_path, MODEL="a.pt", PATH=path)
    assert (tmp_path / "dev.nbest").read_text() == (tmp_path / "test.nbest").read_text() == "\n"
