"""Training, resuming and decoding an encoder-decoder by fairseq's own commands."""

import math
import os
import re
import statistics
import sys
from itertools import product
from types import SimpleNamespace

import pytest
from conftest import (
    PACKAGE,
    ROOT,
    assert_same_run,
    doc,
    fail,
    fail_here,
    generate,
    generated,
    last_validation,
    refused,
    result_of,
    run,
    run_here,
    shim,
    translation_training,
)


@pytest.fixture(scope="session")
def translator(parallel, tmp_path_factory):
    """An uninterrupted run of two epochs, a checkpoint in each one's middle kept."""
    folder = tmp_path_factory.mktemp("translator")
    options = "--max-epoch 2 --save-interval-updates 10 --keep-interval-updates 9"
    output = run_here(translation_training(parallel.data, folder, options))
    return SimpleNamespace(folder=folder, options=options, output=output)


@pytest.fixture(scope="session")
def other(parallel, tmp_path_factory):
    """A model of other components, trained with smoothed labels."""
    folder = tmp_path_factory.mktemp("other")
    options = "--doc-components 0,0,0,3 --seed 5 --max-epoch 2 --label-smoothing 0.1"
    run_here(translation_training(parallel.data, folder, options))
    return folder / "checkpoint_last.pt"


def test_validation_is_repeated_with_processes_that_load(parallel, server, tmp_path):
    """fairseq's default is one, and its validation reads the same loader again."""
    options = "--max-epoch 2 --num-workers 1 --no-save"
    command = translation_training(parallel.data, tmp_path, options)
    result = server.run(command, tmp_path)
    output = result.out
    assert result.status == 0 and not result.left_processes
    assert last_validation(output)["ppl"] > 1 and output.count("| valid | epoch") == 2


@pytest.mark.parametrize("name", ["checkpoint1.pt", "checkpoint_2_30.pt"])
def test_a_resumed_run_ends_as_the_uninterrupted_one(name, parallel, translator, tmp_path):
    """At the end of the first epoch, and within the second."""
    first = translator.folder / name
    assert first.exists()
    options = f"{translator.options} --restore-file {first}"
    output = run_here(translation_training(parallel.data, tmp_path, options))
    ended, uninterrupted = last_validation(output), last_validation(translator.output)
    for name in ("loss", "nll_loss", "balance", "ppl", "num_updates"):
        assert ended[name] == uninterrupted[name], name
    assert_same_run(*(path / "checkpoint_last.pt" for path in (tmp_path, translator.folder)))


def test_a_run_that_validates_by_bleu_resumes_and_translates(parallel, tmp_path):
    """Its checkpoints hold the counts, arrays of numpy."""
    options = "--eval-bleu --best-checkpoint-metric bleu --maximize-best-checkpoint-metric"
    for epochs in (1, 2):
        command = translation_training(parallel.data, tmp_path, f"{options} --max-epoch {epochs}")
        output = run_here(command)
        assert 0 <= last_validation(output)["bleu"] <= 100
    assert f"Loaded checkpoint {tmp_path / 'checkpoint_last.pt'} (epoch 2" in output
    assert len(generated(generate(parallel.data, tmp_path / "checkpoint_best.pt"))) == 60


def test_alignment_and_sampling(parallel, translator):
    checkpoint = translator.folder / "checkpoint_last.pt"
    alignments = generated(generate(parallel.data, checkpoint, "--beam 2 --print-alignment"), "A")
    assert len(alignments) == 60
    assert all(re.fullmatch(r"(\d+-\d+ ?)+", lines[0][0]) for lines in alignments.values())
    soft = generated(generate(parallel.data, checkpoint, "--beam 2 --print-alignment soft"), "A")
    assert len(soft) == 60
    for sentence, lines in soft.items():
        rows = [list(map(float, row.split(","))) for row in lines[0][0].split()]
        assert len({len(row) for row in rows}) == 1, sentence
        assert all(math.isclose(sum(row), 1, abs_tol=1e-3) for row in rows)
    warm = "--sampling --temperature 0.7 --beam 2 --nbest 2 --seed 1 --max-len-b 12"
    drawn, again = (generated(generate(parallel.data, checkpoint, warm)) for _ in "12")
    assert drawn == again and [len(lines) for lines in drawn.values()] == [2] * 60


def test_interactive_takes_any_line_of_utf8_up_to_the_limit(translator, parallel, tmp_path):
    """The limit is 1,024 units by default; the model has none."""
    source = tmp_path / "lines.txt"
    command = (
        f"fairseq-interactive {parallel.data} --user-dir {PACKAGE} -s src -t tgt --beam 2 --cpu "
        f"--path {translator.folder}/checkpoint_last.pt --input {source} --max-len-b 5 "
        "--buffer-size 4 --batch-size 4"
    )
    source.write_text("w1 w2 w3\nnever seen\n\n" + "w4 " * 999 + "w5\n")
    assert sorted(generated(run_here(command))) == [0, 1, 2, 3]
    source.write_text("w4 " * 1_199 + "w5\n")
    assert "--max-source-positions" in fail_here(command)
    assert list(generated(run_here(f"{command} --max-source-positions 2000"))) == [0]


def test_translate_gives_what_fairseq_generate_gives(parallel, translator, other):
    path = f"{translator.folder / 'checkpoint_last.pt'}:{other}"
    words = ["translate", parallel.data, "--path", path, "--cpu", "--no-progress-bar"]
    options = "--beam 3 --lenpen 0.5 --nbest 2"
    result = result_of(*words, "--input", parallel.text / "test.src", *options.split())
    expected = generated(generate(parallel.data, path, f"{options} --batch-size 60"))
    assert len(result["lines"]) == len(expected) == 60
    equal = 0
    for number, line in enumerate(result["lines"]):
        texts = [one["text"] for one in line["hypotheses"]]
        if texts == [text for _, text in expected[number]]:
            equal += 1
            scores = [float(score) * math.log(2) for score, _ in expected[number]]
            assert [one["score"] for one in line["hypotheses"]] == pytest.approx(scores, abs=1e-4)
    assert equal >= 57  # rounding may order two hypotheses of almost equal scores either way


def test_translate_reads_a_pipe_and_refuses_what_it_cannot_read(parallel, translator, tmp_path):
    checkpoint = translator.folder / "checkpoint_last.pt"
    words = ["translate", parallel.data, "--path", checkpoint, "--cpu", "--no-progress-bar"]
    text, remarks = doc(*words, stdin=b"w1 w2\n\nnever w3\n")
    first, empty, last = text.removesuffix("\n").split("\n")
    assert first and last and empty == "" and "never" in remarks
    nbest = doc(*words, "--nbest", 2, stdin=b"w1 w2\n\n")[0].splitlines()
    assert [line.split("\t")[0] for line in nbest] == ["1", "1", "2"]
    assert nbest[0].split("\t")[2] == first
    long = tmp_path / "long.txt"
    long.write_text("w1\n" + "w4 " * 1_024 + "\n")
    assert f"{long}: line 2: " in refused(*words, "--input", long)
    cut = doc(*words, "--truncate-source", "--input", long, "--max-len-b", 3)
    assert len(cut[0].splitlines()) == 2 and "cut after 1,023 units: line 2" in cut[1]
    assert "at least one line" in refused(*words)


def test_the_best_beam_and_length_penalty_translate(parallel, translator):
    checkpoint = translator.folder / "checkpoint_last.pt"
    words = ["translate", parallel.data, "--path", checkpoint, "--cpu", "--no-progress-bar"]
    words += ["--input", parallel.text / "test.src"]
    grid = ["--tune-beams", "1,2", "--tune-lenpens", "0:1:0.5"]
    pairs = [f"--tune-{name}" for name in ("input", "reference")]
    files = [parallel.text / f"valid.{side}" for side in ("src", "tgt")]
    tuned = [*words, pairs[0], files[0], pairs[1], files[1], *grid]
    text, remarks = doc(*tuned)
    assert "lenpen" in remarks and remarks.count("*") == 1
    result = result_of(*tuned)
    tried = {(x["beam"], x["lenpen"]): x["value"] for x in result["tuning"]["tried"]}
    assert list(tried) == [(beam, lenpen) for beam in (1, 2) for lenpen in (0.0, 0.5, 1.0)]
    best = result["beam"], result["lenpen"]
    assert tried[best] == max(tried.values()) == result["tuning"]["value"]
    assert doc(*words, "--beam", best[0], "--lenpen", best[1])[0] == text
    assert "--beam cannot be combined" in refused(*tuned, "--beam", 3)
    assert "--tune-reference" in refused(*words, pairs[0], files[0])


def test_what_each_model_thinks_of_references_and_of_outputs(parallel, translator, other, tmp_path):
    """examples/multi30k/errors.py: the same outputs by search and by score, references as fairseq scores them."""
    checkpoint = translator.folder / "checkpoint_last.pt"
    source, target = (parallel.text / f"test.{side}" for side in ("src", "tgt"))
    words = ["translate", parallel.data, "--cpu", "--no-progress-bar", "--input", source]
    for name, path in (("mine", checkpoint), ("same", checkpoint), ("other", other)):
        folder = tmp_path / f"{name}-seed1"
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "checkpoints/checkpoint_best.pt").symlink_to(path)
        (folder / "test.beam5.json").write_text(doc(*words, "--path", path, "--json")[0])
    script = [sys.executable, ROOT / "examples/multi30k/errors.py", parallel.data, source, target]
    rows = {}
    for second in ("same", "other"):
        table = re.findall(r"^\| `.*", run([*script, tmp_path, 1, "mine", second]), re.MULTILINE)
        rows[second] = [[float(cell) for cell in row.split("|")[2:-1]] for row in table]
    mine, same = rows["same"]
    assert mine == same and mine[0] == mine[3] and mine[4] == 0
    assert rows["other"][0][:3] == mine[:3] and rows["other"][0][3] < mine[0]
    scored = generated(generate(parallel.data, checkpoint, "--score-reference"))
    log_probs = [float(score) * (len(text.split()) + 1) for ((score, text),) in scored.values()]
    assert mine[1] == pytest.approx(math.log(2) * statistics.mean(log_probs), abs=0.02)


def test_the_published_recipe_trains_three_systems_on_free_pairs_and_resumes(tmp_path):
    """examples/iwslt16/tatoeba.sh, with other programs in fairseq's place: what is trained stays."""
    for program in ("fairseq-train", "fairseq-doc", "python"):
        shim(tmp_path, program, f'echo "$(basename "$0") $*" >> {tmp_path}/calls')
    places = {"cwd": tmp_path, "PATH": f"{tmp_path}:{os.environ['PATH']}", "FAIRSEQ_DOC_DATA": "d"}
    places |= {"SRC": "de", "TGT": "fr", "DATA": "data"}  # SRC and TGT: as other recipes leave them
    script = [ROOT / "examples/iwslt16/tatoeba.sh"]
    assert "expected a number of seeds; got nothing" in fail(script, **places)
    assert "expected a text d/tatoeba/en-de.valid.en; got none" in fail([*script, 2], **places)
    (tmp_path / "d/tatoeba").mkdir(parents=True)
    for split, side in product(("valid", "test"), ("en", "de")):
        (tmp_path / f"d/tatoeba/en-de.{split}.{side}").write_text("a")

    def calls(*words):
        (tmp_path / "calls").write_text("")
        run([*script, *words], **places)
        made = (tmp_path / "calls").read_text().splitlines()
        return [
            [call for call in made if call.startswith(name)]
            for name in ("fairseq-train data --", "fairseq-doc translate data", "python")
        ]

    trained, translated, (table,) = calls(2, "--clip-norm", 5)
    given = [
        [call.split(f"{name} ")[-1].split()[0] for call in trained]
        for name in ("--seed", "--clip-norm", "--doc-components", "--save-dir", "--source-lang")
    ]
    assert given[:3] == [list("111222"), ["5"] * 6, ["0,0,0,1", "0,0,0,2", "0,0,2,2"] * 2]
    assert given[4] == ["en"] * 6
    runs = product((1, 2), ("plain", "i3", "doc"))
    saved = [f"checkpoints/tatoeba.en-de/{name}-seed{seed}/checkpoints" for seed, name in runs]
    assert given[3] == saved and len(translated) == 2 * 3 * 2 * 3
    assert table.endswith(
        "d/tatoeba checkpoints/tatoeba.en-de de 2 bleu chrf en-de.valid en-de.test plain i3 doc"
    )
    assert f"--path {saved[0]}/checkpoint_best.pt" in translated[0]
    assert calls(2, "--clip-norm", 5) == [[], [], [table]]
    assert "--clip-norm 5'; got 'data --clip-norm 2'" in fail(
        [*script, 2, "--clip-norm", 2], **places
    )


def test_attention_as_text_json_and_picture(parallel, translator, tmp_path):
    source, picture = tmp_path / "lines.txt", tmp_path / "heat.png"
    source.write_text("w1 w2 w3\nw5 nowhere $x$ w4\n")
    words = ["attention", parallel.data, "--cpu", "--input", source]
    words += ["--path", translator.folder / "checkpoint_last.pt"]
    text, _ = doc(*words, "--line", 2, "--picture", picture)
    assert "output" in text and text.endswith(f"\nwrote {picture}\n")
    assert picture.read_bytes().startswith(b"\x89PNG")
    result = result_of(*words, "--line", 2)
    assert "picture" not in result
    assert result["source"] == ["w5", "<unk>", "<unk>", "w4", "</s>"]
    assert [sum(row) for row in result["weights"]] == pytest.approx([1] * len(result["output"]))
    assert "exists" in refused(*words, "--line", 2, "--picture", picture)
    assert "a sentence in line 3 of the input; got 2 lines" in refused(*words, "--line", 3)
    assert "--bpe-codes need each other" in refused(*words, "--bpe", "subword_nmt")
    source.write_text("w1 " * 201)
    assert "200 units; got one of 201" in refused(*words, "--picture", tmp_path / "new.png")


def test_a_language_model_has_no_attention(trained, corpus, parallel):
    words = ["--path", trained.folder / "checkpoint_last.pt", "--input", "README.md"]
    assert "checkpoint of the task translation" in refused("attention", parallel.data, *words)
    to_file = ["--path", trained.folder / "checkpoint_last.pt", "--output", "new"]
    assert "--side source or --side target" in refused("embeddings", parallel.data, *to_file)
    assert "a dictionary for each side" in refused("attention", corpus.data, *words)
