"""Every file that a command reads, with that command: what is mutilated, and how its result is judged."""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from conftest import PACKAGE
from harm import mutilations, oracles
from harm.inputs import DYNAMIC, LM_MODEL, LM_TRAINING, TRANSLATION

import fairseq_doc.registration  # noqa: F401  # so that torch.load accepts what checkpoints hold


@dataclass(frozen=True)
class Target:
    """One file for one command.

    Attributes:
        kind: of the file, for the counts.
        group: of :class:`harm.inputs.Builder`.
        file: relative to the group's folder.
        words: the command line, run in that folder.
        draws: the unharmed bytes -> a strategy of recipes.
        fits: of :mod:`harm.oracles`.
        reads: (result, folder) -> the command's result as text.
        writes: what the command may write, a regular expression of relative paths.
    """

    kind: str
    group: str
    file: str
    words: tuple[str, ...]
    draws: Callable
    fits: Callable
    reads: Callable
    writes: str | None = None

    @property
    def name(self):
        command = self.words[1] if self.words[0] == "fairseq-doc" else self.words[0]
        options = [w for w, v in zip(self.words, self.words[1:], strict=False) if v == self.file]
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
    digest = hashlib.sha256()

    def add(value):
        if isinstance(value, torch.Tensor):
            digest.update(str(value.dtype).encode() + value.contiguous().numpy().tobytes())
        elif isinstance(value, dict):
            for key in value:
                digest.update(repr(key).encode())
                add(value[key])
        elif isinstance(value, (list, tuple)):
            for part in value:
                add(part)
        else:
            digest.update(repr(value).encode())

    extra = state["extra_state"]
    add([state["model"], state["last_optimizer_state"]])
    add([extra["train_iterator"], extra.get("val_loss"), extra.get("best")])
    return digest.hexdigest()


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
RERANK = ("rerank", "data", "dev.nbest", "--path", "lm.pt", *SHORT[:2])
SCORE = doc("score", "data", "--path", "a.pt", "--cpu", "--no-progress-bar", "--input", "lines.txt")
BLEU = doc("bleu", "generated.out", "other.out", "--reference", "raw/test.de", "--lang", "de")
ROUGE = doc("rouge", "generated.out", "--reference", "raw/test.de", "--lang", "de")
FEW = ("--bootstrap", "100")
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
    ]
    for words, reads in of_checkpoints:
        yield _checkpoint("lm", "a.pt", words, reads)
    resume = train_lm("data", "--restore-file", "middle.pt")
    yield _checkpoint("lm", "middle.pt", resume, trained, SAVES)

    for words, reads in ((eval_lm(), perplexity), (SCORE, json_of())):
        yield _data("lm", "data/dict.txt", words, reads)
    yield _data("lm", "data/dict.txt", train_lm("data"), trained, SAVES)
    yield _dictionary("lm", "plain/dict.txt", eval_lm("plain"), perplexity)
    yield _dictionary("lm", "plain/dict.txt", train_lm("plain"), trained, SAVES)

    for end in ("bin", "idx"):
        yield _data("lm", f"data/test.{end}", eval_lm(), perplexity)
        yield _data("lm", f"data/test.{end}", analysis("eval-lm"), json_of())
        yield _data("lm", f"data/train.{end}", train_lm("data"), trained, SAVES)
        yield _stored("lm", f"plain/test.{end}", eval_lm("plain"), perplexity, 8)
        yield _stored("lm", f"plain/test.{end}", analysis("weights", "plain"), json_of(), 8)
        yield _stored("lm", f"plain/train.{end}", train_lm("plain"), trained, 8, SAVES)
    yield _data("lm", "data/test.idx", analysis("rank"), json_of())
    yield _data("lm", "data/SHA256SUMS", eval_lm(), perplexity)

    yield Target(
        "text", "lm", "lines.txt", SCORE, mutilations.text, oracles.fits_scored_lines, json_of()
    )
    for split in ("train", "valid"):
        yield Target(
            "text", "lm", f"text/{split}.txt", doc("prepare-lm", "text", "text", "new"),
            mutilations.text, oracles.fits_prepared_text(split), _prepared, r"new/.*",
        )  # fmt: skip
    yield Target(
        "YAML", "lm", "run.yaml", HYDRA, _settings, oracles.fits_yaml, trained,
        rf"{SAVES}|hydra_train.log",
    )  # fmt: skip
    yield Target(
        "gradient statistics", "lm", "a.npz", analysis("eval-lm", "data", "a.pt", *DYNAMIC),
        mutilations.binary, oracles.never, json_of("a.npz"), r"a\.npz",
    )  # fmt: skip
    for log in ("train.log", "train.json"):
        yield Target(
            "logs", "lm", log, doc("curves", "new.png", f"a={log}"), mutilations.text,
            oracles.fits_log, json_of(), r"new\.png",
        )  # fmt: skip


def _trees_targets():
    yield _checkpoint("trees", "lm.pt", doc(*RERANK, "--output", "new"), json_of("new"), "new")
    yield _data("trees", "data/dict.txt", doc(*RERANK, "--output", "new"), json_of("new"), "new")
    lists = {
        "dev.nbest": (doc(*RERANK, "--output", "new"), doc("evalb", "dev.mrg", "dev.nbest")),
        "test.nbest.gz": (doc("evalb", "test.mrg", "test.nbest.gz"),),
    }
    for file, commands in lists.items():
        for words in commands:
            draws = mutilations.packed_text if file.endswith("gz") else mutilations.text
            reads = json_of("new") if "new" in words else json_of()
            yield Target(
                "n-best lists", "trees", file, words, draws, oracles.fits_lists, reads, "new"
            )
    rerank = (*RERANK, "--output-nbest", "new")
    for file, words in {
        "best.mrg": [doc("evalb", "dev.mrg", "best.mrg")],
        "dev.mrg": [
            doc("evalb", "dev.mrg", "best.mrg"),
            doc(*rerank, "--tune", "dev.mrg"),
            doc(*rerank, "--sentences", "dev.mrg"),
        ],
        "test.mrg": [
            doc("collect-parses", "test.out", "--sentences", "test.mrg", "--output", "new")
        ],
    }.items():
        for command in words:
            yield Target(
                "trees", "trees", file, command, mutilations.text, oracles.fits_trees,
                json_of("new"), "new",
            )  # fmt: skip
    yield Target(
        "trees", "trees", "train.mrg", doc("prepare-parsing", ".", "new", "--threshold", "2"),
        mutilations.text, oracles.fits_prepared_trees, _prepared, r"new/.*",
    )  # fmt: skip
    words = ("collect-parses", "test.out", "--sentences", "test.mrg", "--output", "new")
    yield Target(
        "generate's outputs", "trees", "test.out", doc(*words), mutilations.text,
        oracles.fits_generated, json_of("new"), "new",
    )  # fmt: skip
    words = (*RERANK, "--scores", "dev.scores", "--output", "new")
    yield Target(
        "score caches", "trees", "dev.scores", doc(*words), _caches, oracles.never,
        _scores_and_output, "new|dev.scores",
    )  # fmt: skip
    for words in (
        doc("evalb", "dev.mrg", "best.mrg", "--prm", "words.prm"),
        doc(*rerank, "--tune", "dev.mrg", "--prm", "words.prm"),
    ):
        yield Target(
            ".prm files", "trees", "words.prm", words, mutilations.text, oracles.fits_parameters,
            json_of("new"), "new",
        )  # fmt: skip


def _translation_targets():
    for words, reads in (
        (generate(), translations),
        (INTERACTIVE, translations),
        (ATTENTION, json_of()),
    ):
        yield _checkpoint("translation", "mt.pt", words, reads)
    resume = train_mt("data", "--restore-file", "mt.pt", "--max-epoch", "2")
    yield _checkpoint("translation", "mt.pt", resume, trained, SAVES)
    for side in ("en", "de"):
        yield _data("translation", f"data/dict.{side}.txt", generate(), translations)
    yield _data("translation", "data/dict.de.txt", INTERACTIVE, translations)
    yield _data("translation", "data/dict.en.txt", ATTENTION, json_of())
    yield _dictionary("translation", "plain/dict.en.txt", generate("plain"), translations)
    for end in ("bin", "idx"):
        yield _data("translation", f"data/test.en-de.en.{end}", generate(), translations)
        yield _data("translation", f"data/train.en-de.de.{end}", train_mt("data"), trained, SAVES)
        file = f"plain/test.en-de.en.{end}"
        yield _stored("translation", file, generate("plain"), translations, 32)
        file = f"plain/train.en-de.en.{end}"
        yield _stored("translation", file, train_mt("plain"), trained, 32, SAVES)

    draws = mutilations.text
    yield Target(
        "text", "translation", "lines.txt", INTERACTIVE, draws, oracles.fits_interactive,
        translations,
    )  # fmt: skip
    yield Target(
        "text", "translation", "lines.txt", ATTENTION, draws, oracles.fits_first_line, json_of()
    )
    words = doc("prepare-mt", "en", "de", "raw", "new", "--merges", "40", "--joint")
    yield Target(
        "text", "translation", "raw/train.en", words, draws, oracles.fits_parallel_text,
        _prepared, r"new/.*",
    )  # fmt: skip
    for command in (BLEU, ROUGE):
        words = (*command, *FEW)
        yield Target(
            "text", "translation", "raw/test.de", words, draws, oracles.fits_references, json_of()
        )
        yield Target(
            "generate's outputs", "translation", "generated.out", words, draws,
            oracles.fits_generated, json_of(),
        )  # fmt: skip
    words = train_mt("plain", "--encoder-embed-path", "vectors.txt")
    yield Target(
        "embeddings", "translation", "vectors.txt", words, draws, oracles.fits_vectors, trained,
        SAVES,
    )  # fmt: skip
    pieces = ("--bpe", "sentencepiece", "--sentencepiece-model", "pieces.model")
    for words, reads in (
        (("fairseq-interactive", "data", *PAIR, *DECODING, *pieces, *READING), translations),
        ((*ATTENTION, *pieces), json_of()),
    ):
        yield Target(
            "sentencepiece models", "translation", "pieces.model", words, mutilations.binary,
            oracles.fits_pieces, reads,
        )  # fmt: skip
    for words, reads in ((INTERACTIVE, translations), (ATTENTION_BPE, json_of())):
        yield Target(
            "BPE merges", "translation", "data/bpe.codes", words, draws, oracles.fits_merges, reads
        )


def _checkpoint(group, file, words, reads, writes=None):
    draws = mutilations.checkpoint
    return Target("checkpoints", group, file, words, draws, oracles.never, reads, writes)


def _data(group, file, words, reads, writes=None):
    """A file that preparation wrote a checksum of."""
    draws = mutilations.text if file.endswith("txt") else mutilations.binary
    kind = "dictionaries" if file.endswith("txt") else ".bin and .idx"
    return Target(kind, group, file, words, draws, oracles.never, reads, writes)


def _dictionary(group, file, words, reads, writes=None):
    """A dictionary without a checksum."""
    fits = oracles.fits_dictionary
    return Target("dictionaries", group, file, words, mutilations.text, fits, reads, writes)


def _stored(group, file, words, reads, vocabulary, writes=None):
    """A .bin or .idx without a checksum."""
    fits = oracles.fits_index if file.endswith("idx") else oracles.fits_tokens(vocabulary)
    return Target(".bin and .idx", group, file, words, mutilations.binary, fits, reads, writes)


def _settings(data):
    """Recipes for YAML without numbers so large that a right reading needs much memory or time."""
    return mutilations.text(data, "[|]").filter(
        lambda recipe: not re.search(rb"\d{4}", mutilations.mutilate(data, recipe))
    )


def _caches(data):
    return mutilations.text(data, "[|]")


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


def _scores_and_output(result, folder):
    """``rerank``'s result, without how many scores it took from the cache, which is whole after it."""
    found = json.loads(json_of("new")(result, folder))
    del found["scored"]
    found["kept"] = oracles.decoded((folder / "dev.scores").read_bytes())
    return json.dumps(found, sort_keys=True)


GROUPS = {"lm": _lm_targets, "trees": _trees_targets, "translation": _translation_targets}


def targets_of(group):
    """The targets of a group by their names."""
    return {target.name: target for target in GROUPS[group]()}
