"""Undamaged inputs of every kind, in one folder a group, made by the project's own commands."""

import json
import os
import random

import toy_language
import toy_translation
import toy_trees
from conftest import PACKAGE, run
from generated_text import block, write

from fairseq_doc.preparation.symbols import symbols_of
from fairseq_doc.preparation.trees import read_trees

USER_DIR = f"--user-dir '{PACKAGE}'"
QUIET = "--num-workers 0 --cpu --log-format simple --log-interval 1"
TRAIN_LM = f"""{USER_DIR} --arch lstm_doc_lm --decoder-embed-dim 8 --layer-dims 12,8 --doc-components 0,1,2
    --task bptt_language_modeling --criterion doc_cross_entropy --optimizer nt_asgd
    --lr-scheduler nt_asgd --lr 5 --clip-norm 0.25 --weight-decay 1.2e-6 --batch-size 4
    --batch-size-valid 2 --bptt 20 --save-dir save {QUIET}""".replace("\n", " ")
TRAIN_MT = f"""{USER_DIR} --arch lstm_luong_doc --encoder-embed-dim 8 --decoder-embed-dim 8 --hidden-size 8
    --doc-components 1,0,0,1 --task translation -s en -t de --criterion doc_cross_entropy
    --optimizer sgd --lr 1 --clip-norm 5 --batch-size 16 --seed 1
    --save-dir save {QUIET}""".replace("\n", " ")
GENERATE = f"""fairseq-generate data {USER_DIR} -s en -t de --path mt.pt --max-len-b 8 --num-workers 0 --cpu
    --tokenizer moses --bpe subword_nmt --bpe-codes data/bpe.codes
    --required-batch-size-multiple 1""".replace("\n", " ")
RULES = """LABELED 1
DELETE_LABEL TOP
DELETE_LABEL -NONE-
DELETE_LABEL_FOR_LENGTH -NONE-
EQ_LABEL ADVP PRT
""".splitlines()
SCRIPTS = {
    # data/ with checksums, plain/ without, a.pt, b.pt, middle.pt of a run to resume, train.log, train.json
    "lm": f"""
fairseq-doc prepare-lm text text data
fairseq-preprocess --only-source --destdir plain --padding-factor 1 \\
    --trainpref text/train.txt --validpref text/valid.txt --testpref text/test.txt
fairseq-train data {TRAIN_LM} --seed 1 --max-epoch 2 \\
    --save-interval-updates 6 --keep-interval-updates 9 > train.log
mv save/checkpoint_last.pt a.pt
mv save/checkpoint_1_6.pt middle.pt
fairseq-train data {TRAIN_LM} --seed 2 --max-epoch 1 --log-format json > train.json
mv save/checkpoint_last.pt b.pt
rm -r save
""",
    # data/, lm.pt, best.mrg
    "trees": f"""
fairseq-doc prepare-parsing . data --threshold 2
fairseq-train data {TRAIN_LM} --max-epoch 1 --seed 1
mv save/checkpoint_last.pt lm.pt
rm -r save
fairseq-doc rerank data dev.nbest --path lm.pt --cpu --output best.mrg
""",
    # data/, mt.pt, generated.out, other.out, lines.txt
    "translation": f"""
fairseq-doc prepare-mt en de raw data --merges 40 --joint
fairseq-train data {TRAIN_MT} --max-epoch 1
mv save/checkpoint_last.pt mt.pt
rm -r save
{GENERATE} --beam 1 > other.out
{GENERATE} --beam 2 --nbest 2 > generated.out
cp raw/test.en lines.txt
""",
}


def _write_lm(folder):
    """text/, lines.txt; pairs of a sentence and one with a word elsewhere, and the same as Kaldi's lists."""
    toy_language.write_corpus(folder / "text", 900, 300, 300)
    lines = (folder / "text" / "test.txt").read_text().splitlines()[:6]
    pairs, lists, first, said = [], [], [], []
    for number, good in enumerate(lines):
        words = good.split()
        bad = " ".join([*words[1:], words[0], "w1"])
        pair = {"sentence_good": good, "sentence_bad": bad, "UID": f"kind_{number % 2}"}
        pairs.append(json.dumps(pair))
        lists += [f"utt{number}-1 {bad}", f"utt{number}-2 {good}"]
        first += [f"utt{number}-1 -{number}.5", f"utt{number}-2 -7"]
        said.append(f"utt{number} {good}")
    texts = {"lines.txt": lines, "pairs.jsonl": pairs, "lists": lists, "first": first, "said": said}
    for name, text in texts.items():
        write(folder / name, text)


def _write_trees(folder):
    """SPLIT.mrg, dev.nbest, test.nbest.gz, rules.prm; test.out, what an encoder-decoder might generate for
    test.mrg: the right symbols, or some of them."""
    toy_trees.write_corpus(folder, 60, 6, 6)
    write(folder / "rules.prm", RULES)
    rng, lines = random.Random(0), []
    for number, (_, tree) in enumerate(read_trees(folder / "test.mrg")):
        symbols = list(symbols_of(tree, str.lower))
        broken = [symbol for symbol in symbols if rng.random() < 0.9]
        source = " ".join(word.lower() for word in tree.words)
        lines += block(number, " ".join(symbols), " ".join(broken), source=source)
    write(folder / "test.out", lines)


def _write_translation(folder):
    """raw/SPLIT.en and SPLIT.de, plain text."""
    toy_translation.write_corpus(folder / "raw", "reverse", 60, 6, 6)
    for path in (folder / "raw").iterdir():
        text = path.read_text().replace("w1", "naïve").replace("w2", "Ärger").replace("\n", ".\n")
        name = path.name.replace(".src", ".en").replace(".tgt", ".de")
        path.rename(path.with_name(name)).write_text(text)


WRITERS = {"lm": _write_lm, "trees": _write_trees, "translation": _write_translation}


def build(server, folder, group):
    """Fill an empty folder with the inputs of a group."""
    WRITERS[group](folder)
    path = f"{server.programs}:{os.environ['PATH']}"
    run(["bash", "-e", "-c", SCRIPTS[group]], folder, PATH=path)
