"""Every file that a command reads, with that command: what is mutilated, and how its result is judged."""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from conftest import PACKAGE, digest_of
from harm import mutilations, oracles
from harm.inputs import COMPARED, DYNAMIC, LM_MODEL, LM_TRAINING, TRANSLATION

import fairseq_doc.registration  # noqa: F401  # so that torch.load accepts what checkpoints hold


@dataclass(frozen=True)
class Target:
    """One file for one command."""

    file: str  # relative to the folder of its group
    words: tuple[str, ...]  # the command line, run in that folder
    fits: Callable  # of harm.oracles
    reads: Callable  # (result, folder) -> the command's result as text
    writes: str | None = None  # what it may write, a regular expression of relative paths
    draws: Callable = mutilations.text  # the unharmed bytes -> a strategy of recipes

    @property
    def name(self):
        command = self.words[1] if self.words[0] == "fairseq-doc" else self.words[0]
        options = [w for w, v in pairwise(self.words) if v == self.file]
        how = "".join(o for o in options if o.startswith("--") and o not in ("--path", "--input"))
        return f"{command}{how}:{self.file}"

    @property
    def prints(self):
        """Whether it may print before it fails: fairseq's log, a preparation's report."""
        return self.words[0] != "fairseq-doc" or self.words[1].startswith("prepare")


# Results


def json_of(*outputs):
    """The JSON object that fairseq-doc prints, without times, and these files."""

    def reads(result, folder):
        found = json.loads(result.out)
        found.pop("seconds", None)
        found.pop("seconds_before", None)
        for name in outputs:
            path = folder / name
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None
        return json.dumps(found, sort_keys=True)

    return reads


def perplexity(result, folder):
    """What fairseq-eval-lm, fairseq-validate and the like print last."""
    return "\n".join(
        re.findall(
            r"Evaluated [\d,]+ tokens|Loss \(base 2\).*|\| valid .*\| loss [\d.]+", result.out
        )
    )


def translations(result, folder):
    """The lines of fairseq-generate and fairseq-interactive, sorted."""
    return "\n".join(sorted(re.findall(r"(?m)^[STHDPA]-\d+\t.*$", result.out)))


def checkpoint(path):
    """A digest of a checkpoint's weights, optimizer state and position in the data."""
    state = torch.load(path)
    extra = state["extra_state"]
    position = [extra["train_iterator"], extra.get("val_loss"), extra.get("best")]
    return digest_of([state["model"], state["last_optimizer_state"], position])


def trained(result, folder):
    """The last checkpoint of a training."""
    return checkpoint(folder / "save" / "checkpoint_last.pt")


# Commands

USER_DIR = ("--user-dir", str(PACKAGE))
LM_TASK = (*USER_DIR, "--task", "bptt_language_modeling", "--num-workers", "0", "--cpu")
PAIR = (*USER_DIR, "-s", "en", "-t", "de", "--num-workers", "0", "--cpu")
DECODING = ("--path", "mt.pt", "--beam", "2", "--max-len-b", "8")
SPLITTING = ("--tokenizer", "moses", "--bpe", "subword_nmt", "--bpe-codes", "data/bpe.codes")
SHORT = ("--cpu", "--no-progress-bar", "--json")
SAVES = r"save/checkpoint.*\.pt|save/[^/]*lock[^/]*"


def doc(*words):
    return ("fairseq-doc", *words, "--json")


def eval_lm(data="data", path="a.pt"):
    return ("fairseq-eval-lm", data, *LM_TASK, "--path", path)


def train_lm(data, *options):
    words = (*LM_MODEL.split(), *LM_TRAINING.split(), "--seed", "1", "--max-update", "8")
    return ("fairseq-train", data, *USER_DIR, *words, "--save-dir", "save", *options)


def train_mt(data, *options):
    words = (*TRANSLATION.split(), "--seed", "1", "--max-epoch", "1", "--save-dir", "save")
    return ("fairseq-train", data, *USER_DIR, "-s", "en", "-t", "de", *words, *options)


def generate(data="data", *options):
    path = "mt.pt" if data == "data" else "plain.pt"
    decoding = ("--path", path, "--beam", "2", "--max-len-b", "8", *options)
    return ("fairseq-generate", data, *PAIR, *decoding, "--required-batch-size-multiple", "1")


READING = ("--input", "lines.txt")
INTERACTIVE = ("fairseq-interactive", "data", *PAIR, *DECODING, *SPLITTING, *READING)
ATTENTION = doc("attention", "data", "--path", "mt.pt", "--cpu", "--input", "lines.txt")
ATTENTION_BPE = (*ATTENTION, "--tokenizer", "moses", "--bpe", "subword_nmt", "--bpe-codes")
ATTENTION_BPE = (*ATTENTION_BPE, "data/bpe.codes")
TRANSLATE = doc("translate", "data", "--path", "mt.pt", "--cpu", "--no-progress-bar", *READING)
RERANK = ("rerank", "data", "dev.nbest", "--path", "lm.pt", *SHORT[:2])
SCORE = doc("score", "data", "--path", "a.pt", "--cpu", "--no-progress-bar", "--input", "lines.txt")
BLEU = doc("bleu", "generated.out", "other.out", "--reference", "raw/test.de", "--lang", "de")
ROUGE = doc("rouge", "generated.out", "--reference", "raw/test.de", "--lang", "de")
FEW = ("--bootstrap", "100")
PAIRS = doc("pairs", "data", "pairs.jsonl", "--path", "a.pt", *SHORT[:2])
RESCORE = ("rescore", "data", "lists", "--path", "a.pt", "--first-pass", "first", "--metric", "wer")
RESCORE = doc(*RESCORE, "--tune", "--reference", "said", "--output", "new", *SHORT[:2])
EMBEDDINGS = doc("embeddings", "data", "--path", "a.pt", "--output", "new")
COMPARE = ("fairseq-doc", "compare", "--json", *COMPARED[1:])
HYDRA = ("fairseq-hydra-train", "--config-dir", ".", "--config-name", "run")
HYDRA = (*HYDRA, "checkpoint.save_dir=save", "optimization.max_update=3")


def analysis(command, data="data", path="a.pt", *options):
    return doc(command, data, "--path", path, "--cpu", "--no-progress-bar", *options)


def _lm_targets():
    of_checkpoints = [
        (eval_lm(), perplexity),
        (("fairseq-validate", "data", *LM_TASK, "--path", "a.pt", "--batch-size", "2"), perplexity),
        (analysis("eval-lm", "data", "a.pt:b.pt"), json_of()),
        (SCORE, json_of()),
        (analysis("generate", "data", "a.pt", "--length", "9"), json_of()),
        (analysis("rank"), json_of()),
        (analysis("weights"), json_of()),
        (PAIRS, json_of()),
    ]
    for words, reads in of_checkpoints:
        yield _checkpoint("a.pt", words, reads)
    for words in (RESCORE, EMBEDDINGS):
        yield _checkpoint("a.pt", words, json_of("new"), "new")
    resume = train_lm("data", "--restore-file", "middle.pt")
    yield _checkpoint("middle.pt", resume, trained, SAVES)

    for words, reads in ((eval_lm(), perplexity), (SCORE, json_of())):
        yield _data("data/dict.txt", words, reads)
    yield _data("data/dict.txt", train_lm("data"), trained, SAVES)
    yield _dictionary("plain/dict.txt", eval_lm("plain"), perplexity)
    yield _dictionary("plain/dict.txt", train_lm("plain"), trained, SAVES)

    for end in ("bin", "idx"):
        yield _data(f"data/test.{end}", eval_lm(), perplexity)
        yield _data(f"data/test.{end}", analysis("eval-lm"), json_of())
        yield _data(f"data/train.{end}", train_lm("data"), trained, SAVES)
        yield _stored(f"plain/test.{end}", eval_lm("plain"), perplexity, 8)
        yield _stored(f"plain/test.{end}", analysis("weights", "plain"), json_of(), 8)
        yield _stored(f"plain/train.{end}", train_lm("plain"), trained, 8, SAVES)
    yield _data("data/test.idx", analysis("rank"), json_of())
    yield _data("data/SHA256SUMS", eval_lm(), perplexity)

    yield Target("lines.txt", SCORE, oracles.fits_scored_lines, json_of())
    prepare = doc("prepare-lm", "text", "text", "new")
    for split in ("train", "valid"):
        fits = oracles.fits_prepared_text(split)
        yield Target(f"text/{split}.txt", prepare, fits, _prepared, "new/.*")
    writes = f"{SAVES}|hydra_train.log"
    yield Target("run.yaml", HYDRA, oracles.fits_yaml, trained, writes, _settings)
    yield Target("pairs.jsonl", PAIRS, oracles.fits_pairs, json_of())
    for file in ("lists", "first", "said"):
        yield Target(file, RESCORE, oracles.fits_kaldi, json_of("new"), "new")
    for file in ("compared/data.SHA256SUMS", "compared/a-seed1/evaluation.json"):
        yield Target(file, COMPARE, oracles.never, json_of(), "compared/.*")
    words, draws = analysis("eval-lm", "data", "a.pt", *DYNAMIC), mutilations.binary
    yield Target("a.npz", words, oracles.never, json_of(), r"a\.npz", draws)
    for log in ("train.log", "train.json"):
        words = doc("curves", "new.png", f"a={log}")
        yield Target(log, words, oracles.fits_log, json_of(), r"new\.png")


def _trees_targets():
    best = doc(*RERANK, "--output", "new")
    yield _checkpoint("lm.pt", best, json_of("new"), "new")
    yield _data("data/dict.txt", best, json_of("new"), "new")
    fits = oracles.fits_lists
    yield Target("dev.nbest", best, fits, json_of("new"), "new")
    yield Target("dev.nbest", doc("evalb", "dev.mrg", "dev.nbest"), fits, json_of())
    words, draws = doc("evalb", "test.mrg", "test.nbest.gz"), mutilations.packed_text
    yield Target("test.nbest.gz", words, fits, json_of(), None, draws)
    lists = (*RERANK, "--output-nbest", "new")
    collect = doc("collect-parses", "test.out", "--sentences", "test.mrg", "--output", "new")
    for file, words in (
        ("best.mrg", doc("evalb", "dev.mrg", "best.mrg")),
        ("dev.mrg", doc("evalb", "dev.mrg", "best.mrg")),
        ("dev.mrg", doc(*lists, "--tune", "dev.mrg")),
        ("dev.mrg", doc(*lists, "--sentences", "dev.mrg")),
        ("test.mrg", collect),
    ):
        yield Target(file, words, oracles.fits_trees, json_of("new"), "new")
    words = doc("prepare-parsing", ".", "new", "--threshold", "2")
    yield Target("train.mrg", words, oracles.fits_prepared_trees, _prepared, "new/.*")
    yield Target("test.out", collect, oracles.fits_generated, json_of("new"), "new")
    for words in (
        doc("evalb", "dev.mrg", "best.mrg", "--prm", "words.prm"),
        doc(*lists, "--tune", "dev.mrg", "--prm", "words.prm"),
    ):
        yield Target("words.prm", words, oracles.fits_parameters, json_of("new"), "new")


def _translation_targets():
    for words, reads in (
        (generate(), translations),
        (INTERACTIVE, translations),
        (ATTENTION, json_of()),
        (TRANSLATE, json_of()),
    ):
        yield _checkpoint("mt.pt", words, reads)
    resume = train_mt("data", "--restore-file", "mt.pt", "--max-epoch", "2")
    yield _checkpoint("mt.pt", resume, trained, SAVES)
    for side in ("en", "de"):
        yield _data(f"data/dict.{side}.txt", generate(), translations)
    yield _data("data/dict.de.txt", INTERACTIVE, translations)
    for file in ("dict.en.txt", "settings.json"):
        yield _data(f"data/{file}", ATTENTION, json_of())
    yield _dictionary("plain/dict.en.txt", generate("plain"), translations)
    for end in ("bin", "idx"):
        yield _data(f"data/test.en-de.en.{end}", generate(), translations)
        yield _data(f"data/train.en-de.de.{end}", train_mt("data"), trained, SAVES)
        yield _stored(f"plain/test.en-de.en.{end}", generate("plain"), translations, 32)
        yield _stored(f"plain/train.en-de.en.{end}", train_mt("plain"), trained, 32, SAVES)

    yield Target("lines.txt", INTERACTIVE, oracles.fits_interactive, translations)
    yield Target("lines.txt", ATTENTION, oracles.fits_first_line, json_of())
    words = doc("prepare-mt", "en", "de", "raw", "new", "--merges", "40", "--joint")
    yield Target("raw/train.en", words, oracles.fits_parallel_text, _prepared, "new/.*")
    for command in (BLEU, ROUGE):
        words = (*command, *FEW)
        yield Target("raw/test.de", words, oracles.fits_references, json_of())
        yield Target("generated.out", words, oracles.fits_generated, json_of())
    words = train_mt("plain", "--encoder-embed-path", "vectors.txt")
    yield Target("vectors.txt", words, oracles.fits_vectors, trained, SAVES)
    pieces = ("--bpe", "sentencepiece", "--sentencepiece-model", "pieces.model")
    fits, draws = oracles.fits_pieces, mutilations.binary
    words = ("fairseq-interactive", "data", *PAIR, *DECODING, *pieces, *READING)
    yield Target("pieces.model", words, fits, translations, None, draws)
    yield Target("pieces.model", (*ATTENTION, *pieces), fits, json_of(), None, draws)
    for words, reads in ((INTERACTIVE, translations), (ATTENTION_BPE, json_of())):
        yield _data("data/bpe.codes", words, reads)


def _checkpoint(file, words, reads, writes=None):
    return Target(file, words, oracles.never, reads, writes, mutilations.checkpoint)


def _data(file, words, reads, writes=None):
    """A file that preparation wrote a checksum of."""
    draws = mutilations.text if file.endswith("txt") else mutilations.binary
    return Target(file, words, oracles.never, reads, writes, draws)


def _dictionary(file, words, reads, writes=None):
    """A dictionary without a checksum."""
    return Target(file, words, oracles.fits_dictionary, reads, writes)


def _stored(file, words, reads, vocabulary, writes=None):
    """A .bin or .idx without a checksum."""
    fits = oracles.fits_index if file.endswith("idx") else oracles.fits_tokens(vocabulary)
    return Target(file, words, fits, reads, writes, mutilations.binary)


def _settings(data):
    """Recipes for YAML without numbers so large that a right reading needs much memory or time."""
    return mutilations.text(data, "[|]").filter(
        lambda recipe: not re.search(rb"\d{4}", mutilations.mutilate(data, recipe))
    )


def _prepared(result, folder):
    """What a preparation reports, and the digests of its data."""
    found = json.loads(result.out)
    digests = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((folder / "new").rglob("*"))
        if path.suffix in (".bin", ".idx") or path.name.startswith("dict.")
    }
    return json.dumps(
        {"splits": found.get("splits"), "sides": found.get("sides"), "files": digests}
    )


GROUPS = {"lm": _lm_targets, "trees": _trees_targets, "translation": _translation_targets}


def targets_of(group):
    """The targets of a group by their names."""
    return {target.name: target for target in GROUPS[group]()}
