"""Tokens per second and peak memory in training at the paper's size for Penn Treebank, on a CPU.

Each row is one ``fairseq-train`` on the same random text with 10,000 words, batch 12 and window 70. The rows
take turns, once in every round, since the speed of a machine may change within minutes. The speed of a row is
the median over rounds of the median after the first updates; a ratio is the median of the ratios in each
round. The peak resident size includes a validation and a checkpoint at the end. Rows:

    ours                20 components, lstm_doc_lm_ptb
    ours, bfloat16      the same with --matmul-precision bfloat16
    ours, plain output  the same with the output operation in its plain form
    sampled             ours with --gradient-sampling 0.05, with mixture weights distributed as in a
                        trained model
    sampled, bfloat16   both
    one softmax         the same with one component
    one softmax, bfloat16
    fairseq lstm_lm     fairseq's own LSTM language model, one softmax, embedding width 280, three
                        layers of equal width, 870, which gives the LSTMs as many weights (16.1M)
    LSTM alone          only the LSTM layers of ours, forward and backward, in both precisions; the
                        share is their part of a step of ours
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import fairseq_doc
from benchmarks.tools import measured_apart, timed
from fairseq_doc.models.lstm_doc_lm import LSTMDocLanguageModelConfig
from fairseq_doc.modules.awd_lstm import AWDLSTM
from fairseq_doc.ops.matmul import PRECISIONS
from fairseq_doc.options import option

VOCABULARY, TOKENS = 10_000, 60_000
WINDOW, BATCH = 70, 12
BIN = Path(sys.executable).parent
PACKAGE = Path(fairseq_doc.__file__).parent
LOG_INTERVAL = 5
PLUGINS = {
    "plain_output": """
import fairseq_doc.modules.mixture as mixture
import fairseq_doc.registration
from fairseq_doc.ops import reference

def plain(*inputs, **settings):  # the settings do not change the result
    return reference.mixture_nll(*inputs)

mixture.fused_mixture_nll = plain
""",
    # As in output_layer.py. An untrained model has equal weights.
    "spread_weights": """
import torch
import fairseq_doc.modules.mixture as mixture
import fairseq_doc.registration

class Spread(torch.nn.Linear):
    def forward(self, h):
        scores = super().forward(h)
        return scores + 4 * torch.randn_like(scores)

build = mixture.MixtureOutput.__init__
def spread(self, *arguments, **settings):
    build(self, *arguments, **settings)
    if self.mixture_weights is not None:
        self.mixture_weights.__class__ = Spread

mixture.MixtureOutput.__init__ = spread
""",
}
COMMON = f"""--clip-norm 0.25 --lr 20 --batch-size {BATCH} --no-progress-bar --log-format simple --seed 1
    --num-workers 0 --no-epoch-checkpoints --max-epoch 1000"""
OURS = """--task bptt_language_modeling --arch lstm_doc_lm_ptb --criterion doc_cross_entropy
    --doc-balance published --doc-lambda 0.001 --ar-alpha 2 --tar-beta 1 --optimizer nt_asgd
    --lr-scheduler nt_asgd --weight-decay 1.2e-6 --batch-size-valid 10"""
FAIRSEQ = f"""--task language_modeling --arch lstm_lm --decoder-embed-dim 280 --decoder-hidden-size 870
    --decoder-layers 3 --decoder-out-embed-dim 280 --share-decoder-input-output-embed
    --criterion cross_entropy --optimizer sgd --tokens-per-sample {WINDOW} --sample-break-mode none
    --required-batch-size-multiple 1 --weight-decay 1.2e-6"""


@dataclass(frozen=True, kw_only=True)
class Options:
    updates: int = option("updates per training", 40, least=4 * LOG_INTERVAL)
    rounds: int = option("trainings per row", 3, least=1)


def prepare(folder, vocabulary=VOCABULARY, tokens=TOKENS):
    """Random text in which every word occurs, binarised."""
    rng = np.random.default_rng(0)
    ranks = np.arange(1, vocabulary + 1)
    words = rng.choice(vocabulary, size=tokens, p=(1 / ranks) / (1 / ranks).sum())
    words[:vocabulary] = rng.permutation(vocabulary)
    lines = [" ".join(f"w{w}" for w in words[i : i + 20]) for i in range(0, tokens, 20)]
    (folder / "train.txt").write_text("\n".join(lines) + "\n")
    (folder / "valid.txt").write_text("\n".join(lines[:500]) + "\n")
    options = "--only-source --padding-factor 1".split()
    command: list[str | Path] = [BIN / "fairseq-preprocess", *options]
    command += ["--trainpref", folder / "train.txt", "--validpref", folder / "valid.txt"]
    subprocess.run([*command, "--destdir", folder / "bin"], check=True, capture_output=True)
    for name, text in PLUGINS.items():
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(text)
    return folder / "bin"


def train(data, user_dir, options, save_dir, updates, environment=None):
    """(tokens per second, peak resident GB of 10^9 bytes) of one ``fairseq-train``."""
    settings = f"{COMMON} {options} --max-update {updates} --log-interval {LOG_INTERVAL}"
    folders = ["--save-dir", save_dir, "--user-dir", user_dir]
    command = [BIN / "fairseq-train", data, *folders, *settings.split()]
    with tempfile.TemporaryFile("w+") as log:
        environment = {**os.environ, **(environment or {})}
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        log.seek(0)
        output = log.read()
    if status:
        sys.exit(f"{' '.join(map(str, command))}\nfailed:\n{output[-2000:]}")
    return tokens_per_second(output), usage.ru_maxrss * 1024 / 1e9


def tokens_per_second(output):
    """The median speed in the log of a training, after the first updates."""
    speeds = [float(s) for s in re.findall(r"train_inner .*?\bwps=([\d.]+)", output)]
    return statistics.median(speeds[2:])


def lstm_speed(precision, repeats=7):
    """Median tokens per second of only our LSTM layers, forward and backward."""
    cfg = LSTMDocLanguageModelConfig()
    widths = [cfg.decoder_embed_dim, *map(int, cfg.layer_dims.split(","))]
    dropouts = cfg.weight_dropout, cfg.hidden_dropout, cfg.output_dropout
    lstm = AWDLSTM(widths, *dropouts, PRECISIONS[precision])
    x = torch.randn(WINDOW, BATCH, widths[0], requires_grad=True)
    gradients = [torch.randn(WINDOW, BATCH, width) for width in widths[1:]]

    def step():
        lstm.zero_grad()
        outputs, _, _ = lstm(x, lstm.zero_state(BATCH, x))
        torch.autograd.backward(outputs, gradients)

    step()
    return WINDOW * BATCH / statistics.median(timed(step) for _ in range(repeats))


def measure(rows, updates):
    """One round: {row: (tokens per second, peak resident GB or None)}, also printed on standard error.
    ``rows``: {row: (data, user_dir, options)} for :func:`train`; the rows of the LSTM alone are added."""
    found: dict[str, tuple] = {}
    for row in (*rows, "LSTM alone, float32", "LSTM alone, bfloat16"):
        if row in rows:
            data, user_dir, options = rows[row]
            with tempfile.TemporaryDirectory() as save_dir:
                found[row] = train(data, user_dir, options, save_dir, updates)
        else:
            found[row] = measured_apart(lstm_speed, row.removeprefix("LSTM alone, ")), None
        print(f"{row}, {found[row][0]:.0f} tokens/s", file=sys.stderr, flush=True)
    return found


def ratios(found):
    """The ratios of one round, the result of :func:`measure`."""
    speed = {row: of for row, (of, _) in found.items()}
    ours, half = speed["ours"], speed["ours, bfloat16"]
    sampled, sampled_half = speed["sampled"], speed["sampled, bfloat16"]
    return {
        "over_plain_output": ours / speed["ours, plain output"],
        "over_fairseq_lstm_lm": ours / speed["fairseq lstm_lm"],
        "lstm_share": ours / speed["LSTM alone, float32"],
        "bfloat16_over_float32": half / ours,
        "bfloat16_over_fairseq_lstm_lm": half / speed["fairseq lstm_lm"],
        "bfloat16_lstm_share": half / speed["LSTM alone, bfloat16"],
        "over_one_softmax": ours / speed["one softmax"],
        "sampled_over_fairseq_lstm_lm": sampled / speed["fairseq lstm_lm"],
        "sampled_over_one_softmax": sampled / speed["one softmax"],
        "bfloat16_sampled_over_fairseq_lstm_lm": sampled_half / speed["fairseq lstm_lm"],
        "bfloat16_sampled_over_one_softmax": sampled_half / speed["one softmax, bfloat16"],
    }


def rows_of(folder):
    """{row: (data, user_dir, options)} for :func:`train`; the text is written into this folder."""
    data = prepare(folder)
    plain, spread = (folder / plugin for plugin in PLUGINS)
    half, one = "--matmul-precision bfloat16", "--doc-components 0,0,0,1"
    sampled = "--gradient-sampling 0.05"
    return {
        "ours": (data, PACKAGE, f"{OURS} --cpu"),
        "ours, bfloat16": (data, PACKAGE, f"{OURS} --cpu {half}"),
        "ours, plain output": (data, plain, f"{OURS} --cpu"),
        "sampled": (data, spread, f"{OURS} --cpu {sampled}"),
        "sampled, bfloat16": (data, spread, f"{OURS} --cpu {sampled} {half}"),
        "one softmax": (data, PACKAGE, f"{OURS} --cpu {one}"),
        "one softmax, bfloat16": (data, PACKAGE, f"{OURS} --cpu {one} {half}"),
        "fairseq lstm_lm": (data, PACKAGE, f"{FAIRSEQ} --cpu"),
    }


def run(settings):
    """Result: ``tokens_per_second``, ``peak_rss_gb`` and the ratios."""
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        rows = rows_of(Path(folder))
        for number in range(1, settings.rounds + 1):
            print(f"round {number} of {settings.rounds}", file=sys.stderr, flush=True)
            rounds.append(measure(rows, settings.updates))
    speed = {row: statistics.median(of[row][0] for of in rounds) for row in rounds[0]}
    memory = {row: max(of[row][1] for of in rounds) for row in rows}
    by_round = [ratios(of) for of in rounds]
    figures = {"tokens_per_second": speed["ours"], "peak_rss_gb": memory["ours"]}
    figures |= {name: statistics.median(of[name] for of in by_round) for name in by_round[0]}
    for row in speed:
        peak = f"  {memory[row]:5.2f} GB peak" if row in memory else ""
        print(f"{row:20} {speed[row]:7.0f} tokens/s{peak}")
    for name, value in figures.items():
        print(f"ours: {name} {value:.3f}")
    return figures
