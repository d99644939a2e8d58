"""Unharmed inputs of every kind, in one folder a group, made by the project's own commands."""

import json
import random
import shutil

import toy_language
import toy_translation
import toy_trees
from conftest import PACKAGE

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


class Builder:
    """Fills a folder with the inputs of one group.

    Args:
        server: a :class:`fork_server.ForkServer`.
        folder: exists, empty.
    """

    def __init__(self, server, folder):
        self.server, self.folder = server, folder

    def run(self, *words, **settings):
        """Run a command that must succeed; its output."""
        result = self.server.run(words, self.folder, **settings)
        assert result.status == 0, f"{words}\n{result.out[-2000:]}\n{result.err[-2000:]}"
        return result.out

    def build(self, group):
        """``lm``, ``trees`` or ``translation``."""
        getattr(self, f"_{group}")()

    def train_lm(self, data, save_dir, *options):
        """Train a small language model; its log."""
        words = f"{LM_MODEL} {LM_TRAINING}".split()
        words += ["--save-dir", save_dir, *options]
        return self.run("fairseq-train", data, "--user-dir", PACKAGE, *words)

    def _lm(self):
        """text/, data/ (with checksums), plain/ (fairseq-preprocess's), a.pt, b.pt, middle.pt (of a
        run to resume), train.log, train.json, lines.txt, run.yaml, a.npz (gradient statistics of a.pt),
        pairs.jsonl, lists, first, said (Kaldi's), compared/ (of the systems a and b)."""
        toy_language.write_corpus(self.folder / "text", 900, 300, 300)
        self.run("fairseq-doc", "prepare-lm", "text", "text", "data")
        prefixes = [f"--{split}pref=text/{split}.txt" for split in ("train", "valid", "test")]
        self.run(
            "fairseq-preprocess",
            "--only-source",
            "--destdir=plain",
            "--padding-factor=1",
            *prefixes,
        )
        saving = ("--save-interval-updates", 6, "--keep-interval-updates", 9, "--seed", 1)
        log = self.train_lm("data", "save", *saving, "--max-epoch", 2)
        (self.folder / "train.log").write_text(log)
        (self.folder / "save" / "checkpoint_last.pt").rename(self.folder / "a.pt")
        (self.folder / "save" / "checkpoint_1_6.pt").rename(self.folder / "middle.pt")
        options = ("--seed", 2, "--max-epoch", 1, "--log-format", "json")
        log = self.train_lm("data", "save", *options)
        (self.folder / "train.json").write_text(log)
        for name in ("a", "b"):
            system = self.folder / "compared" / f"{name}-seed1"
            shutil.copytree(self.folder / "save", system / "checkpoints")
            (system / "log.txt").write_text(log)
        (self.folder / "save" / "checkpoint_last.pt").rename(self.folder / "b.pt")
        shutil.rmtree(self.folder / "save")
        lines = (self.folder / "text" / "test.txt").read_text().splitlines()
        (self.folder / "lines.txt").write_text("".join(f"{line}\n" for line in lines[:6]))
        (self.folder / "run.yaml").write_text(YAML)
        self._lists([line.split() for line in lines[:6]])
        self.run("fairseq-doc", "eval-lm", "data", "--path", "a.pt", "--cpu", *DYNAMIC)
        self.run("fairseq-doc", *COMPARED)

    def _lists(self, sentences):
        """Pairs of a sentence and one with a word at another place; both as candidates."""
        pairs, lists, first, said = [], [], [], []
        for number, words in enumerate(sentences):
            good, bad = " ".join(words), " ".join([*words[1:], words[0], "w1"])
            pair = {"sentence_good": good, "sentence_bad": bad, "UID": f"kind_{number % 2}"}
            pairs.append(json.dumps(pair))
            lists += [f"utt{number}-1 {bad}", f"utt{number}-2 {good}"]
            first += [f"utt{number}-1 -{number}.5", f"utt{number}-2 -7"]
            said.append(f"utt{number} {good}")
        texts = {"pairs.jsonl": pairs, "lists": lists, "first": first, "said": said}
        for name, text in texts.items():
            (self.folder / name).write_text("".join(f"{line}\n" for line in text))

    def _trees(self):
        """train.mrg, dev.mrg, test.mrg, dev.nbest, test.nbest.gz, dev.scores, words.prm, data/ (with
        pairs/), lm.pt, best.mrg, test.out (an encoder-decoder's)."""
        toy_trees.write_corpus(self.folder, 60, 6, 6)
        (self.folder / "words.prm").write_text(PRM)
        self.run("fairseq-doc", "prepare-parsing", ".", "data", "--pairs", "--threshold", 2)
        self.train_lm("data", "save", "--max-epoch", 1, "--seed", 1)
        (self.folder / "save" / "checkpoint_last.pt").rename(self.folder / "lm.pt")
        shutil.rmtree(self.folder / "save")
        rerank = "fairseq-doc rerank data dev.nbest --path lm.pt --cpu --scores dev.scores".split()
        self.run(*rerank, "--output", "best.mrg")
        (self.folder / "test.out").write_text(_generated_trees(self.folder))

    def _translation(self):
        """raw/ (SPLIT.en and SPLIT.de, plain text), data/ (with checksums, BPE), plain/
        (fairseq-preprocess's), mt.pt, plain.pt, generated.out, other.out, lines.txt, vectors.txt,
        pieces.model (of sentencepiece)."""
        toy_translation.write_corpus(self.folder / "raw", "reverse", 60, 6, 6)
        for path in sorted((self.folder / "raw").iterdir()):
            text = path.read_text()
            for number in range(11, -1, -1):
                text = text.replace(f"w{number}", WORDS.get(f"w{number}", f"word{number}"))
            ends = "".join(f"{line}.\n" for line in text.splitlines())
            name = path.name.replace(".src", ".en").replace(".tgt", ".de")
            path.rename(path.with_name(name)).write_text(ends)
        prepare = "fairseq-doc prepare-mt en de raw".split()
        self.run(*prepare, "data", "--merges", 40, "--joint")
        self.run(*prepare, "pieces", "--bpe", "sentencepiece", "--merges", 60, "--joint")
        (self.folder / "pieces" / "sentencepiece.model").rename(self.folder / "pieces.model")
        shutil.rmtree(self.folder / "pieces")
        prefixes = [f"--{split}pref=raw/{split}" for split in ("train", "valid", "test")]
        pair = ("-s", "en", "-t", "de")
        self.run("fairseq-preprocess", *pair, "--joined-dictionary", "--destdir=plain", *prefixes)
        self._vectors()
        for data, name in (("data", "mt.pt"), ("plain", "plain.pt")):
            words = [*TRANSLATION.split(), *pair, "--max-epoch", 1, "--seed", 1]
            words += ["--save-dir", "save"]
            self.run("fairseq-train", data, "--user-dir", PACKAGE, *words)
            (self.folder / "save" / "checkpoint_last.pt").rename(self.folder / name)
            shutil.rmtree(self.folder / "save")
        for beam, name in ((2, "generated.out"), (1, "other.out")):
            words = ["--path", "mt.pt", "--beam", beam, "--nbest", beam, "--max-len-b", 8, "--cpu"]
            words += ["--tokenizer", "moses", "--bpe", "subword_nmt", "--num-workers", 0]
            words += ["--bpe-codes", "data/bpe.codes", "--required-batch-size-multiple", 1]
            out = self.run("fairseq-generate", "data", "--user-dir", PACKAGE, *pair, *words)
            (self.folder / name).write_text(out)
        shutil.copy(self.folder / "raw" / "test.en", self.folder / "lines.txt")

    def _vectors(self):
        rng = random.Random(0)
        dictionary = (self.folder / "plain" / "dict.en.txt").read_text().splitlines()
        words = [line.split()[0] for line in dictionary]
        rows = [
            f"{word} {' '.join(f'{rng.uniform(-1, 1):.4f}' for _ in range(8))}" for word in words
        ]
        text = "".join(f"{row}\n" for row in [f"{len(rows)} 8", *rows])
        (self.folder / "vectors.txt").write_text(text)


def _generated_trees(folder):
    """What an encoder-decoder might generate for test.mrg: the right symbols, or some of them."""
    rng = random.Random(0)
    lines = []
    for number, (_, tree) in enumerate(read_trees(folder / "test.mrg")):
        words = [word.lower() for word in tree.words]
        symbols = list(symbols_of(tree, str.lower))
        broken = [symbol for symbol in symbols if rng.random() < 0.9]
        lines.append(f"S-{number}\t{' '.join(words)}")
        for own in (symbols, broken):
            lines.append(f"H-{number}\t-0.5\t{' '.join(own)}")
            lines.append(f"D-{number}\t-0.5\t{' '.join(own)}")
            lines.append(f"P-{number}\t{' '.join(['-0.5000'] * (len(own) + 1))}")
    return "".join(f"{line}\n" for line in lines)
