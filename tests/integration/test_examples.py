"""The scripts of the examples, with other programs in place of fairseq's that print or write what is needed."""

import json
import os
import sys
import time
from itertools import pairwise, product

import pytest
from conftest import BIN, ROOT, fail, run, shim
from fairseq import options

from fairseq_doc.cli.main import make_parser, settings_of
from fairseq_doc.tuning.systems import chosen_systems

EXAMPLES = ROOT / "examples"
ECHO = 'printf "%s\\n" "$@"'


def words_of(script, tmp_path, program="fairseq-train", **places):
    """The words that a script gives to a program."""
    shim(tmp_path, program, ECHO)
    script = script if isinstance(script, list) else [script]
    return run(script, PATH=f"{tmp_path}:{BIN}:{os.environ['PATH']}", **places).splitlines()


@pytest.fixture
def by_fairseq(monkeypatch):
    """A function: words of fairseq-train -> the arguments that it reads."""
    monkeypatch.setattr("sys.argv", ["fairseq-train"])  # fairseq looks for --user-dir here
    monkeypatch.chdir(ROOT)

    def read(words):
        monkeypatch.setattr("sys.argv", ["fairseq-train", *words])
        return options.parse_args_and_arch(options.get_training_parser(), input_args=words)

    return read


@pytest.fixture
def compared(tmp_path, monkeypatch):
    """A function: script -> the systems of each of its comparisons, as ``fairseq-doc compare`` reads them."""
    monkeypatch.chdir(ROOT)

    def read(script):
        words = words_of(script, tmp_path, "fairseq-doc")
        starts = [i for i, word in enumerate(words) if word in ("compare", "bleu")] + [len(words)]
        comparisons = []
        for first, end in pairwise(starts):
            make_parser(words[first]).parse_args(words[first:end])
            if words[first] == "compare":
                dashes = words.index("--", first)
                systems = [word for word in words[first:dashes] if "=" in word]
                comparisons.append(chosen_systems([], systems, words[dashes + 1 : end], print))
        return comparisons

    return read


def write_best(studies, name, **settings):
    """The best settings of a study, as tune.sh reports them."""
    report = studies / name / "report" / "report.json"
    report.parent.mkdir(parents=True)
    report.write_text(json.dumps({"best": {"settings": settings}}))


def tuned_words(script, tmp_path):
    """The words that a script's ``fairseq-doc tune`` gives to fairseq-train."""
    words = words_of(script, tmp_path, "fairseq-doc")
    report = words.index("tune", 1)
    assert settings_of(make_parser("tune").parse_args(words[report:])).overwrite
    return words[words.index("fairseq-train") + 1 : report]


def test_the_compared_systems_have_one_size_and_other_options_follow(compared):
    """Fine-tuned, from its own model, and with another lambda, a system is the same model."""
    scripts = EXAMPLES / "small_comparison"
    own = ["--seeds", "1", "--", "--max-epoch", "60"]
    [first] = compared([scripts / "compare.sh", "data", "first", *own])
    [tuned] = compared([scripts / "fine_tune.sh", "data", "first", "second", *own])
    [strengths] = compared([scripts / "lambda.sh", "data", "lambda", *own])
    [cycle] = compared(["env", "SCHEDULE=one_cycle", scripts / "compare.sh", "data", "cycle", *own])
    words = 10_002
    doc2 = first["doc2"].args
    for name, system in [*first.items(), *tuned.items(), *strengths.items(), *cycle.items()]:
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
    assert {x.args.max_update - int(x.args.total_num_update) for x in cycle.values()} == {0}


def test_the_systems_of_equal_tuning_are_accepted_by_fairseq(compared, by_fairseq, tmp_path):
    """Tuned, trained with the best settings, and averaged, with the same model."""
    scripts, studies = EXAMPLES / "equal_tuning", tmp_path / "the studies"
    systems = ["lstm1", "lstm2", "rhn5", "nas1", "mos3", "doc3"]
    for name in systems:
        write_best(studies, name, lr=0.004, l2=1e-6, **{"state-dropout": 0.25})
    best, averaged = compared([scripts / "compare.sh", "data", studies, *systems])
    for system in systems:
        words = tuned_words([scripts / "tune.sh", system, "data", studies], tmp_path)
        every = [by_fairseq(words), best[system].args, averaged[system].args]
        for name in ("arch", "cell", "layers", "rhn_depth", "doc_components", "num_params", "bptt"):
            assert len({str(getattr(args, name, None)) for args in every}) == 1
        assert every[1].lr == [0.004] and not every[1].stop_above
        assert every[2].lr == [5.0] and every[2].state_dropout == 0.25
        assert every[2].finetune_from_model == str(
            studies / "tuned" / (system + "-seed{seed}") / "checkpoints" / "checkpoint_best.pt"
        )


@pytest.fixture
def translation(tmp_path):
    """The script, data and studies of four tuned systems of multi30k."""
    data = tmp_path / "data.en-de"
    data.mkdir()
    for file in (data / "test1.en-de.de.bin", tmp_path / "raw2"):
        file.write_text("Ein Haus .")
    for name, rate in RATES.items():
        weight = {"doc-lambda": rate} if name.startswith("i") else {}
        write_best(tmp_path, name, lr=rate, **{"label-smoothing": 0.1}, **weight)
    return [EXAMPLES / "multi30k/compare.sh", data, tmp_path, "raw1", tmp_path / "raw2"]


RATES = {"fairseq": 0.001, "softmax": 0.002, "i3": 0.004, "i2i3": 0.005}  # of the tuned systems


def test_translation_refuses_what_it_cannot_do(translation, tmp_path):
    assert "got i9" in fail([*translation, "i9"])
    assert "linear has the settings of i3" in fail([*translation, "linear"])
    (tmp_path / "softmax" / "report" / "report.json").unlink()
    assert "softmax/report/report.json, which tune.sh softmax writes" in fail(
        [*translation, "softmax"]
    )
    (tmp_path / "raw2").write_text("")
    assert "raw2, for the second test set" in fail([*translation, "i3"])


def test_the_systems_of_translation_are_accepted_by_fairseq(
    translation, compared, by_fairseq, tmp_path
):
    """Each tries the best settings of every study; ``linear`` is not tuned: it has those of ``i3``."""
    names = ["fairseq", "softmax", "linear", "i3", "i2i3"]
    crossed = [f"{name}.{study}" for name in RATES for study in RATES]
    values = {name: 3.0 - 0.1 * name.endswith(".softmax") for name in crossed}
    values |= {"i3.i2i3": 2.5, "softmax.fairseq": 2.5}
    rows = {name: {"seeds": [2], "valid": {"values": [value]}} for name, value in values.items()}
    for name, study in product(names, RATES):  # the second test set's output, already there
        of_seed = tmp_path / "final.en-de" / f"{name}.{study}-seed2"
        of_seed.mkdir(parents=True)
        (of_seed / "generate-test1.txt").touch()
    (tmp_path / "final.en-de" / "comparison.json").write_text(json.dumps({"systems": rows}))
    every, finals = compared([*translation, *names, "--workers", 2])
    assert list(every) == crossed
    assert list(finals) == [
        "fairseq.softmax", "softmax.fairseq", "linear.i2i3", "i3.i2i3", "i2i3.softmax",
    ]  # fmt: skip
    for label, system in [*every.items(), *finals.items()]:
        name, study = label.split(".")
        assert system.args.lr == [RATES[study]] and system.args.max_update == 7256
        assert system.args.label_smoothing == 0.1
        if name.startswith("i"):
            assert system.args.doc_lambda == RATES[study if study.startswith("i") else name]
    other = tmp_path / "data.de-en"  # has the settings that were chosen for en-de
    other.mkdir()
    (other / "test1.de-en.en.bin").write_text("A house .")
    (tmp_path / "final.de-en").symlink_to("final.en-de")
    (same,) = compared([translation[0], other, *translation[2:], *names])
    assert list(same) == list(finals)
    for name, system in same.items():
        assert (system.args.source_lang, system.args.lr) == ("de", finals[name].args.lr)
    for name in RATES:
        script = [EXAMPLES / "multi30k/tune.sh", name, translation[1], tmp_path]
        args = by_fairseq(tuned_words(script, tmp_path))
        assert (args.source_lang, args.target_lang, args.max_update) == ("en", "de", 1814)
        assert args.arch == every[f"{name}.{name}"].args.arch
        assert ("doc-lambda" in (tmp_path / f"{name}.yaml").read_text()) == name.startswith("i")


@pytest.mark.parametrize(
    "example, sides, splits, metrics, updates",
    [
        ("multi30k", ("en", "de"), "val test_2016_flickr test_2017_flickr", "bleu chrf", 907),
        ("gigaword", ("src", "tgt"), "valid test", "rouge1 rouge2 rougeL", 1047),
    ],
)
def test_systems_from_scratch_and_grown_ones_are_trained_and_tabulated(
    example, sides, splits, metrics, updates, compared, tmp_path
):
    """Grown ones start as the softmax of their seed. Beam and penalty are the best over both seeds together."""
    data, texts, folder = tmp_path / "data.en-de", tmp_path / "the texts", tmp_path / "the runs"
    script = [EXAMPLES / example / "seeds.sh", data, texts, folder, 2]
    valid, *_ = splits.split()
    assert f"expected a text {texts}/{valid}.{sides[0]}" in fail([*script, "softmax", "i3"])
    texts.mkdir()
    names = ["softmax", "linear", "i3", "grown_linear", "grown_i3", "grown_i2i3"]
    good, bad = "ein Haus steht am See .", "ein Haus am Berg ."
    for text in splits.split():
        for side in sides:
            (texts / f"{text}.{side}").write_text(f"{good}\n")
        for name, seed, beam in product(names, (1, 2), (1, 5, 10)):
            kept = [(good, 6, -4.2), (bad, 5, -4.0 if beam == 10 else -5.0)]
            if name == "linear":  # without a penalty the bad one of beam 10 is ahead
                kept = [kept[1]] if beam < 10 else kept
            lists = [dict(zip(("text", "tokens", "log_prob"), one, strict=True)) for one in kept]
            place = folder / "second" / f"{name}-seed{seed}" / f"{text}.beam{beam}.json"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(json.dumps({"lines": [{"hypotheses": lists}]}))
    assert "expected DATA TEXTS FOLDER SEEDS SYSTEM...; got 4" in fail(script)
    assert "got grown_softmax" in fail([*script, "grown_softmax"])
    shim(tmp_path, "python", "")  # the tables, below
    first, second = compared([*script, *names, "--workers", 2])
    assert list(first) == ["softmax", "linear", "i3"] and list(second) == names
    for name, system in [*first.items(), *second.items()]:
        args = system.args
        assert args.label_smoothing > 0 and (args.source_lang, args.target_lang) == sides
        assert args.doc_components == {"i3": "0,0,0,2", "i2i3": "0,0,2,2"}.get(
            name.removeprefix("grown_"), "0,0,0,1"
        )
    assert {system.args.max_update for system in first.values()} == {8 * updates}
    for name, system in second.items():
        place = f"{folder}/first/{'softmax' if 'grown' in name else name}-seed{{seed}}"
        start = system.args.grow_from if "grown" in name else system.args.finetune_from_model
        assert start == f"{place}/checkpoints/checkpoint_best.pt"
        assert system.args.max_update == 3 * updates
    assert second["grown_i2i3"].args.doc_weight_bias
    assert list(compared([*script, "softmax", "grown_i3"])[0]) == ["softmax"]
    tabulate = [sys.executable, EXAMPLES / "multi30k/seeds.py", texts, folder / "second", sides[1]]
    tabulate += [2, metrics, splits]
    table = run([*tabulate, *names])
    assert (
        "| `linear` | 10 | 0.3 | 100.00 |" in table and "| `softmax` | 1 | 0.0 | 100.00 |" in table
    )
    row = next(line for line in table.splitlines() if line.startswith("| `linear` | 100.00 ± 0.00"))
    assert "| 1.000 | 100.00 ± 0.00 |" in row and "| +0.00 ± 0.00 | +0.00 to +0.00 |" in row
    (texts / f"{valid}.{sides[1]}").write_text(f"{good}\n" * 2)
    assert "expected 2 sentences, as in the references; got 1" in fail([*tabulate, "softmax"])


@pytest.fixture
def beyond(tmp_path):
    """``beyond(*segments)``: the table of examples/beyond/evaluate.sh where eval-lm finds the same result
    each time, and the calls of eval-lm."""
    from fairseq_doc.adaptation.cache import CacheSettings
    from fairseq_doc.adaptation.dynamic import DynamicSettings
    from fairseq_doc.cli.eval_lm import _adaptation
    from fairseq_doc.evaluation.scorer import ScorerSettings

    settings = ScorerSettings(
        cache=CacheSettings(window=9, theta=0.5, share=0.25),
        dynamic=DynamicSettings(rate=3e-5, decay=0.002),
    )
    found = _adaptation(settings)
    found |= {"perplexity": 97.531, "seconds": 12.3, "seconds_before": 4.4}
    found |= {"searched": {"theta 1": 99.0}, "at_ends": {"theta": "smallest"}}
    shim(tmp_path, "fairseq-doc", f"echo \"$@\" >> {tmp_path}/calls\necho '{json.dumps(found)}'")
    (tmp_path / "m.pt").touch()

    def evaluate(*segments):
        (tmp_path / "calls").write_text("")
        script = [EXAMPLES / "beyond/evaluate.sh", "m.pt", "data", *segments]
        table = run(script, cwd=tmp_path, PATH=f"{tmp_path}:{BIN}:{os.environ['PATH']}")
        calls = (tmp_path / "calls").read_text().splitlines()
        assert all(call.endswith(" --matmul-precision float32 --json") for call in calls)
        calls = [call.split("--gen-subset ")[1].partition(" --matmul")[0] for call in calls]
        return [line.strip("|").split("|") for line in table.splitlines()], calls

    return evaluate


def test_the_evaluation_beyond_the_paper_uses_what_its_searches_find_and_resumes(beyond, tmp_path):
    """Another call computes only what is missing or was computed with other weights."""
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

    (tmp_path / "m.pt.beyond/cache_dot.test.json").unlink()
    statistics = tmp_path / "m.pt.beyond/dynamic5.npz"
    statistics.touch()
    again, made = beyond()
    assert again == rows and len(made) == 1 and statistics.exists()
    later = time.time() + 60
    os.utime(tmp_path / "m.pt", (later, later))
    _, made = beyond()
    assert made == calls and not statistics.exists()


@pytest.mark.usefixtures("beyond")
def test_the_compared_models_are_evaluated_as_an_ensemble_and_seed_1_alone(tmp_path):
    """The rank, which takes minutes, is counted once."""
    models = [tmp_path / f"softmax-seed{n}/checkpoints/checkpoint_best.pt" for n in (1, 2)]
    for model in models:
        model.parent.mkdir(parents=True)
        model.touch()
    script = [EXAMPLES / "small_comparison/evaluate.sh", "data", tmp_path, "softmax"]
    for _ in range(2):
        output = run(script, cwd=tmp_path, PATH=f"{tmp_path}:{BIN}:{os.environ['PATH']}")
        assert "| dynamic20 |" in output
    calls = (tmp_path / "calls").read_text().splitlines()
    for split in ("valid", "test"):
        assert calls.count(f"eval-lm data --path {models[0]}:{models[1]} --gen-subset {split}") == 2
    ranks = [call for call in calls if call.startswith("rank")]
    assert ranks == [f"rank data --path {models[0]} --gen-subset valid"]
    assert not any(call.startswith("weights") for call in calls)


@pytest.mark.parametrize("example", ["penn_treebank", "wikitext2", "wikitext103"])
def test_a_recipe_is_evaluated_where_it_was_saved(example, tmp_path, monkeypatch):
    recipe = EXAMPLES / example
    trained = words_of(recipe / "train.sh", tmp_path)
    words = words_of(recipe / "evaluate.sh", tmp_path, program="fairseq-eval-lm")
    saved = trained[trained.index("--save-dir") + 1]
    assert words.count(f"{saved}/checkpoint_best.pt") == 2 and words[0] == trained[0]
    monkeypatch.setattr("sys.argv", ["fairseq-eval-lm", *words])
    monkeypatch.chdir(ROOT)
    parser = options.get_eval_lm_parser(default_task="bptt_language_modeling")
    args = options.parse_args_and_arch(parser, input_args=words[: len(words) // 2])
    assert args.gen_subset == "valid" and "test" in words


def test_a_long_run_keeps_its_options(tmp_path):
    for program in ("fairseq-train", "fairseq-doc"):
        shim(tmp_path, program, ECHO)
    (tmp_path / "dict.txt").touch()
    recipe = [EXAMPLES / "penn_treebank" / "two_cores.sh", "doc", "2"]
    places = {
        "DATA": tmp_path,
        "DIR": tmp_path / "runs",
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }
    assert "DIR=" in fail([*recipe, "--save-dir", "elsewhere"], **places)
    for _ in range(2):
        assert "--total-num-update\n1362\n" in run(recipe, **places)
    assert "name another folder" in fail([*recipe, "--seed", "2"], **places)


@pytest.mark.parametrize(
    "example, command, score",
    [
        ("iwslt16", "bleu", "--lang de"),
        ("gigaword", "rouge", "--tokenized-reference --allow-unknown"),
    ],
)
def test_evaluation_translates_with_an_ensemble_and_scores(example, command, score, tmp_path):
    shim(tmp_path, "fairseq-generate", ECHO)
    shim(tmp_path, "fairseq-doc", ECHO)
    places = {"MODEL": "a model.pt:b.pt", "RAW": "reference", "OUT": "out.txt"}
    places["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    places |= {"SCORE": score} if command == "rouge" else {}
    evaluate = [EXAMPLES / example / "evaluate.sh", "--cpu"]
    for missing in ("reference", "a model.pt", "b.pt"):
        assert f"got no file {missing}" in fail(evaluate, cwd=tmp_path, **places)
        (tmp_path / missing).touch()
    scored = run(evaluate, cwd=tmp_path, **places).splitlines()
    assert scored == [command, "out.txt", "--reference", "reference", *score.split()]
    generated = (tmp_path / "out.txt").read_text().splitlines()
    assert places["MODEL"] in generated and generated[-1] == "--cpu"
    refusal = fail(evaluate, cwd=tmp_path, **places)
    assert "out.txt exists" in refusal and "OUT=" in refusal


@pytest.mark.parametrize("example", ["iwslt16", "gigaword"])
def test_evaluation_finds_the_model_of_a_system(example, tmp_path):
    evaluate = EXAMPLES / example / "evaluate.sh"
    trained = words_of(evaluate.parent / "train_plain.sh", tmp_path)
    saved = [word for before, word in pairwise(trained) if before == "--save-dir"][-1]
    (tmp_path / "reference").touch()
    missing = fail([evaluate], cwd=tmp_path, RAW="reference", SYSTEM="plain")
    assert f"got no file {saved}/checkpoint_best.pt" in missing


def test_parsing_starts_over_after_an_interruption_and_refuses_to_overwrite(tmp_path):
    """Half of a list of an earlier run does not count as a list."""
    recipe = EXAMPLES / "parsing"
    writes_its_output = 'while [ $# -gt 1 ]; do [ "$1" = --output ] && echo > "$2"; shift; done'
    for program in ("fairseq-generate", "fairseq-doc"):
        shim(tmp_path, program, writes_its_output)
    (tmp_path / "dev.nbest.part").write_text("(S (NP of a run that was interr")
    places = {"cwd": tmp_path, "PATH": f"{tmp_path}:{os.environ['PATH']}", "MODEL": "a.pt"}
    assert "got no file a.pt" in fail([recipe / "parse.sh"], **places)
    (tmp_path / "a.pt").touch()
    run([recipe / "parse.sh"], **places)
    assert (tmp_path / "dev.nbest").read_text() == (tmp_path / "test.nbest").read_text() == "\n"
    exists = fail([recipe / "parse.sh"], **places)
    assert "dev.nbest exists" in exists and "OUT=" in exists
    assert "TEST=LISTS" in fail([recipe / "rerank.sh"], DEV="dev.nbest", **places)
