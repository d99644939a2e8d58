"""Unharmed inputs of every kind, in one folder a group, made by the project's own commands."""

import json
import os
import random
import shlex

import toy_language
import toy_translation
import toy_trees
from conftest import PACKAGE, run
from generated_text import block

from fairseq_doc.preparation.symbols import symbols_of
from fairseq_doc.preparation.trees import read_trees

LM_MODEL = "--arch lstm_doc_lm --decoder-embed-dim 8 --layer-dims 12,8 --doc-components 0,1,2"
LM_TRAINING = """--task bptt_language_modeling --criterion doc_cross_entropy --optimizer nt_asgd
    --lr-scheduler nt_asgd --lr 5 --clip-norm 0.25 --weight-decay 1.2e-6 --batch-size 4
    --batch-size-valid 2 --bptt 20 --num-workers 0 --cpu --log-format simple --log-interval 1"""
TRANSLATION = """--arch lstm_luong_doc --encoder-embed-dim 8 --decoder-embed-dim 8 --hidden-size 8
    --doc-components 1,0,0,1 --task translation --criterion doc_cross_entropy
    --optimizer sgd --lr 1 --clip-norm 5 --batch-size 16 --num-workers 0 --cpu --log-format simple
    --log-interval 1"""
WORDS = {
    "w0": "naïve",
    "w1": "dog",
    "w2": "Ärger",
    "w3": "well-known",
    "w4": "runs",
    "w5": "slowly",
}
YAML = f"""common: {{user_dir: {PACKAGE}, seed: 1, log_format: simple, log_interval: 1, cpu: true}}
task: {{_name: bptt_language_modeling, data: data, bptt: 20}}
model: {{_name: lstm_doc_lm, decoder_embed_dim: 8, layer_dims: "12,8", doc_components: "0,1,2"}}
criterion: {{_name: doc_cross_entropy, doc_balance: published, ar_alpha: 2.0, tar_beta: 1.0}}
optimizer: {{_name: nt_asgd, weight_decay: 1.2e-6}}
lr_scheduler: {{_name: nt_asgd}}
optimization:
  lr: [5.0]
  clip_norm: 0.25
dataset:
  batch_size: 4
  batch_size_valid: 2
  num_workers: 0
distributed_training: {{distributed_world_size: 1}}
hydra: {{run: {{dir: .}}, output_subdir: null, job: {{chdir: false}}}}
"""
PRM = """DEBUG 0
MAX_ERROR 10
CUTOFF_LEN 40
LABELED 1
DELETE_LABEL TOP
DELETE_LABEL -NONE-
DELETE_LABEL ,
DELETE_LABEL_FOR_LENGTH -NONE-
QUOTE_LABEL ``
QUOTE_LABEL ''
EQ_LABEL ADVP PRT
"""


DYNAMIC = ("--dynamic", "--dynamic-segment", 30, "--dynamic-columns", 5, "--dynamic-batches", 2)
DYNAMIC = (*map(str, DYNAMIC), "--dynamic-statistics", "a.npz")
COMPARED = ("compare", "--dir", "compared", "--seeds", "1", "a=", "b=", "--no-progress-bar", "--")
COMPARED = (*COMPARED, "fairseq-train", "data", "--user-dir", str(PACKAGE))
COMPARED = (*COMPARED, *LM_MODEL.split(), *LM_TRAINING.split(), "--log-format", "json")
COMPARED = (*COMPARED, "--max-epoch", "1")


# The files that no command makes


def _write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))


def _write_lm(folder):
    """text/, lines.txt, run.yaml; pairs of a sentence and one with a word at another place, and the same as
    Kaldi's lists."""
    toy_language.write_corpus(folder / "text", 900, 300, 300)
    lines = (folder / "text" / "test.txt").read_text().splitlines()[:6]
    _write(folder / "lines.txt", lines)
    (folder / "run.yaml").write_text(YAML)
    pairs, lists, first, said = [], [], [], []
    for number, good in enumerate(lines):
        words = good.split()
        bad = " ".join([*words[1:], words[0], "w1"])
        pair = {"sentence_good": good, "sentence_bad": bad, "UID": f"kind_{number % 2}"}
        pairs.append(json.dumps(pair))
        lists += [f"utt{number}-1 {bad}", f"utt{number}-2 {good}"]
        first += [f"utt{number}-1 -{number}.5", f"utt{number}-2 -7"]
        said.append(f"utt{number} {good}")
    texts = {"pairs.jsonl": pairs, "lists": lists, "first": first, "said": said}
    for name, text in texts.items():
        _write(folder / name, text)


def _write_trees(folder):
    """SPLIT.mrg, dev.nbest, test.nbest.gz, words.prm; test.out, what an encoder-decoder might generate for
    test.mrg: the right symbols, or some of them."""
    toy_trees.write_corpus(folder, 60, 6, 6)
    (folder / "words.prm").write_text(PRM)
    rng, lines = random.Random(0), []
    for number, (_, tree) in enumerate(read_trees(folder / "test.mrg")):
        symbols = list(symbols_of(tree, str.lower))
        broken = [symbol for symbol in symbols if rng.random() < 0.9]
        source = " ".join(word.lower() for word in tree.words)
        lines += block(number, " ".join(symbols), " ".join(broken), source=source)
    _write(folder / "test.out", lines)


def _write_translation(folder):
    """raw/ (SPLIT.en and SPLIT.de, plain text)."""
    toy_translation.write_corpus(folder / "raw", "reverse", 60, 6, 6)
    for path in sorted((folder / "raw").iterdir()):
        text = path.read_text()
        for number in range(11, -1, -1):
            text = text.replace(f"w{number}", WORDS.get(f"w{number}", f"word{number}"))
        name = path.name.replace(".src", ".en").replace(".tgt", ".de")
        _write(path.rename(path.with_name(name)), [f"{line}." for line in text.splitlines()])


# The rest

USER_DIR = f"--user-dir '{PACKAGE}'"
TRAIN_LM = f"{USER_DIR} {LM_MODEL} {LM_TRAINING} --save-dir save".replace("\n", " ")
TRAIN_MT = f"{USER_DIR} {TRANSLATION} -s en -t de --max-epoch 1 --seed 1 --save-dir save"
TRAIN_MT = TRAIN_MT.replace("\n", " ")
SCRIPTS = {
    # data/ (with checksums), plain/ (fairseq-preprocess's), a.pt, b.pt, middle.pt (of a run to resume),
    # train.log, train.json, a.npz (gradient statistics of a.pt), compared/ (of the systems a and b)
    "lm": f"""
fairseq-doc prepare-lm text text data
fairseq-preprocess --only-source --destdir plain --padding-factor 1 \\
    --trainpref text/train.txt --validpref text/valid.txt --testpref text/test.txt
fairseq-train data {TRAIN_LM} --seed 1 --max-epoch 2 \\
    --save-interval-updates 6 --keep-interval-updates 9 > train.log
mv save/checkpoint_last.pt a.pt
mv save/checkpoint_1_6.pt middle.pt
fairseq-train data {TRAIN_LM} --seed 2 --max-epoch 1 --log-format json > train.json
for name in a b; do
    mkdir -p compared/$name-seed1
    cp -r save compared/$name-seed1/checkpoints
    cp train.json compared/$name-seed1/log.txt
done
mv save/checkpoint_last.pt b.pt
rm -r save
fairseq-doc eval-lm data --path a.pt --cpu {shlex.join(DYNAMIC)}
fairseq-doc {shlex.join(COMPARED)}
""",
    # data/ (with pairs/), lm.pt, best.mrg
    "trees": f"""
fairseq-doc prepare-parsing . data --pairs --threshold 2
fairseq-train data {TRAIN_LM} --max-epoch 1 --seed 1
mv save/checkpoint_last.pt lm.pt
rm -r save
fairseq-doc rerank data dev.nbest --path lm.pt --cpu --output best.mrg
""",
    # data/ (with checksums, BPE), plain/ (fairseq-preprocess's), mt.pt, plain.pt, generated.out, other.out,
    # lines.txt, vectors.txt, pieces.model (of sentencepiece)
    "translation": f"""
fairseq-doc prepare-mt en de raw data --merges 40 --joint
fairseq-doc prepare-mt en de raw pieces --bpe sentencepiece --merges 60 --joint
mv pieces/sentencepiece.model pieces.model
rm -r pieces
fairseq-preprocess -s en -t de --joined-dictionary --destdir plain \\
    --trainpref raw/train --validpref raw/valid --testpref raw/test
for data in data plain; do
    fairseq-train $data {TRAIN_MT}
    mv save/checkpoint_last.pt $data.pt
    rm -r save
done
mv data.pt mt.pt
for beam in 1 2; do
    fairseq-generate data {USER_DIR} -s en -t de --path mt.pt --beam $beam --nbest $beam --max-len-b 8 \\
        --cpu --tokenizer moses --bpe subword_nmt --bpe-codes data/bpe.codes --num-workers 0 \\
        --required-batch-size-multiple 1 > $beam.out
done
mv 1.out other.out
mv 2.out generated.out
cp raw/test.en lines.txt
wc -l < plain/dict.en.txt | sed 's/$/ 8/' > vectors.txt
awk '{{ printf "%s", $1; for (i = 1; i <= 8; i++) printf " %.4f", sin(NR * i); print "" }}' \\
    plain/dict.en.txt >> vectors.txt
""",
}
WRITERS = {"lm": _write_lm, "trees": _write_trees, "translation": _write_translation}


def build(server, folder, group):
    """Fill an empty folder with the inputs of a group."""
    WRITERS[group](folder)
    path = f"{server.programs}:{os.environ['PATH']}"
    run(["bash", "-e", "-c", SCRIPTS[group]], folder, PATH=path)
