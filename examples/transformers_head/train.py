"""Train a small GPT-2 from scratch with one softmax, with mixtures of softmaxes, and with a mixture that
replaces the trained softmax; print perplexity, time and memory of each.

    python examples/transformers_head/train.py
    python examples/transformers_head/train.py --doc-components 0,0,0,8 0,2,2,4 --save checkpoints/heads

The text is the one that every Python carries, or --text. Each row is trained in a process of its own:

    one softmax   GPT2LMHeadModel, as transformers has it
    0,0,0,4       a mixture, here of 4 softmaxes of the last of three layers (MoS); one row for each of
                  --doc-components, the numbers of components from the embedding and from every layer
    plain         the first mixture with a loss that computes all its probabilities at once, for at
                  most 20 steps, to compare time and memory
    trained on    the trained one softmax, trained further for half as many steps
    exchanged     the trained one softmax, replaced by as many components of the last layer as the first
                  mixture has, and also trained further for half as many steps

Seconds are the median of the steps after the third; processor seconds are the mean, over all threads, and
hardly depend on what else the machine does. Extra memory is the growth of the peak resident size
from before the first step to after the last: activations, gradients, the optimizer's state. Words that
occur once in training are <unk>. Every token of a split but its first is scored, in windows of --context.
"""

import argparse
import functools
import json
import math
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))
from benchmarks.output_layer import losses
from benchmarks.tools import machine, measured_apart, resident_bytes, tables_on_stderr, timed
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import check_input, text_lines
from fairseq_doc.modules.mixture import MixtureOutput, parse_components
from fairseq_doc.ops.matmul import BACKENDS, force_backend
from fairseq_doc.options import with_flags
from fairseq_doc.preparation import pydoc_text

try:
    from mixture_head import MixtureHeadConfig, MixtureHeadForCausalLM
except FairseqDocError as error:
    sys.exit(f"train: error: {error}")
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    get_cosine_schedule_with_warmup,
)
from transformers.utils import logging

SPLITS = ("train", "valid", "test")
UNKNOWN, END = "<unk>", "</s>"
LEAST = 2  # occurrences in training of the words that are kept
SIZES = {
    "--steps": 600,
    "--layers": 3,
    "--width": 128,
    "--heads": 4,
    "--context": 64,
    "--batch-size": 8,
    "--dropout": 0.1,
    "--lr": 2e-3,
    "--seed": 1,
}
UNTIMED = 3  # steps
PLAIN_STEPS = 20
WARM_UP = 0.1  # the part of the steps in which the learning rate rises
SOFTMAX, PLAIN, TRAINED_ON, EXCHANGED = "one softmax", "plain", "trained on", "exchanged"

# ---- text ----


def read_text(folder: Path) -> dict[str, list[str]]:
    """{split: its words, with </s> after every line}."""
    return {
        split: [
            word for line in text_lines(folder / f"{split}.txt") for word in [*line.split(), END]
        ]
        for split in SPLITS
    }


def make_vocabulary(words: list[str]) -> dict[str, int]:
    """{word: index}, from the training text."""
    frequent = sorted(word for word, count in Counter(words).items() if count >= LEAST)
    return {word: index for index, word in enumerate(dict.fromkeys([UNKNOWN, END, *frequent]))}


def make_tokenizer(vocabulary: dict[str, int]) -> PreTrainedTokenizerFast:
    """A tokenizer that splits text at whitespace."""
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token=UNKNOWN,
        bos_token=END,
        eos_token=END,
        pad_token=END,
        model_input_names=["input_ids", "attention_mask"],
    )


def random_windows(
    stream: torch.Tensor, context: int, batch_size: int, rng: torch.Generator
) -> torch.Tensor:
    """(B, T + 1) consecutive words from random places of a stream."""
    starts = torch.randint(len(stream) - context, (batch_size, 1), generator=rng)
    return stream[starts + torch.arange(context + 1)]


def all_windows(stream: torch.Tensor, context: int) -> torch.Tensor:
    """A whole stream as (windows, T + 1). A window's last word is the next one's first, so that each word
    is one window's target; -100 fills up the last window."""
    count = math.ceil((len(stream) - 1) / context)
    filled = F.pad(stream, (0, count * context + 1 - len(stream)), value=-100)
    return filled.unfold(0, context + 1, context)


# ---- models ----


def make_model(row: str, folder: Path, args: argparse.Namespace, vocabulary: dict[str, int]) -> Any:
    """The model of a row: new, or the trained one softmax and what replaces it."""
    if row in (TRAINED_ON, EXCHANGED):
        softmax = GPT2LMHeadModel.from_pretrained(place(folder, SOFTMAX))
        if row == TRAINED_ON:
            return softmax
        return MixtureHeadForCausalLM.from_causal_lm(softmax, sum(args.components[0]))
    end = vocabulary[END]
    config = GPT2Config(
        vocab_size=len(vocabulary),
        n_positions=args.context + 1,
        n_embd=args.width,
        n_layer=args.layers,
        n_head=args.heads,
        embd_pdrop=args.dropout,
        resid_pdrop=args.dropout,
        attn_pdrop=args.dropout,
        bos_token_id=end,
        eos_token_id=end,
    )
    if row == SOFTMAX:
        return GPT2LMHeadModel(config)
    components = args.components[0]
    if row != PLAIN:
        components = parse_components(row, args.layers)
    model = MixtureHeadForCausalLM(MixtureHeadConfig(text_config=config, components=components))
    if row == PLAIN:
        model.output.nll = functools.partial(plain_nll, model.output)
    return model


def plain_nll(
    output: MixtureOutput, mixture_params: torch.Tensor, target: torch.Tensor, reduction: str
) -> torch.Tensor:
    """The mean NLL from all (N, J, V) probabilities at once, as in the published code of MoS."""
    assert reduction == "mean"
    total = losses(output.unpack(mixture_params), target.flatten())["probabilities"]()
    return total / target.ne(-100).sum()


def place(folder: Path, row: str) -> Path:
    """Where a row's model is."""
    return folder / row.replace(" ", "_")


# ---- training ----


def train(
    model: Any, stream: torch.Tensor, steps: int, args: argparse.Namespace
) -> dict[str, float]:
    """``seconds`` and ``processor_seconds`` of a step, and ``extra_bytes``."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), args.lr, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = get_cosine_schedule_with_warmup(optimizer, WARM_UP * steps, steps)
    rng = torch.Generator().manual_seed(args.seed)
    before, _ = resident_bytes()

    def step() -> None:
        words = random_windows(stream, args.context, args.batch_size, rng)
        model(words, labels=words, use_cache=False).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()

    seconds = []
    start = time.process_time()
    for _ in range(steps):
        seconds.append(timed(step))
    return {
        "seconds": statistics.median(seconds[UNTIMED:] or seconds),
        "processor_seconds": (time.process_time() - start) / steps,
        "extra_bytes": resident_bytes()[1] - before,
    }


@torch.no_grad()
def perplexity(model: Any, stream: torch.Tensor, args: argparse.Namespace) -> float:
    """exp of the mean NLL of every word but the first."""
    model.eval()
    total = 0.0
    for labels in all_windows(stream, args.context).split(args.batch_size):
        total += model(labels.clamp(min=0), labels=labels, num_items_in_batch=1).loss.item()
    return math.exp(total / (len(stream) - 1))


def train_row(row: str, folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Train and evaluate the model of a row, and write it to the folder.

    Returns:
        ``parameters`` and what :func:`train` returns; ``valid`` and ``test``, perplexities, except
        for ``PLAIN``. For a model that is trained further, also ``valid_before`` and
        ``test_before``, but no ``extra_bytes``.
    """
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.manual_seed(args.seed)
    text = read_text(args.text)
    vocabulary = make_vocabulary(text["train"])
    unknown = vocabulary[UNKNOWN]
    streams = {
        split: torch.tensor([vocabulary.get(word, unknown) for word in words])
        for split, words in text.items()
    }
    model = make_model(row, folder, args, vocabulary)
    found: dict[str, float] = {"parameters": sum(p.numel() for p in model.parameters())}
    steps = min(args.steps, PLAIN_STEPS) if row == PLAIN else args.steps
    if row in (TRAINED_ON, EXCHANGED):
        steps = math.ceil(steps / 2)
        for split in SPLITS[1:]:
            found[f"{split}_before"] = perplexity(model, streams[split], args)
    found |= train(model, streams["train"], steps, args)
    if row in (TRAINED_ON, EXCHANGED):
        del found["extra_bytes"]  # the evaluation before has left memory that the training reuses
    if row != PLAIN:
        for split in SPLITS[1:]:
            found[split] = perplexity(model, streams[split], args)
        model.save_pretrained(place(folder, row))
        make_tokenizer(vocabulary).save_pretrained(place(folder, row))
    return found


# ---- the table ----


def header() -> str:
    """The first line."""
    costs = f"{'s a step':>10}{'processor s':>13}{'extra MB':>10}{'parameters':>12}"
    return f"{'':26}{'valid':>8}{'test':>8}{costs}"


def lines(row: str, found: dict[str, float]) -> list[str]:
    """A row of the table, of two lines if the model was trained before."""
    texts = []
    if "valid_before" in found:
        before = f"{row}, at the start"
        texts.append(f"{before:26}{found['valid_before']:8.2f}{found['test_before']:8.2f}")
    perplexities = "".join(
        f"{found[split]:8.2f}" if split in found else f"{'':8}" for split in SPLITS[1:]
    )
    costs = f"{found['seconds']:10.3f}{found['processor_seconds']:13.3f}"
    memory = f"{found['extra_bytes'] / 1e6:.0f}" if "extra_bytes" in found else ""
    costs += f"{memory:>10}{found['parameters']:12,}"
    return [*texts, f"{row:26}{perplexities}{costs}"]


def make_arguments() -> argparse.ArgumentParser:
    """The parser."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object of figures")
    parser.add_argument("--backend", choices=BACKENDS, help="library for float32 matrix products")
    parser.add_argument(
        "--doc-components",
        nargs="+",
        metavar="LIST",
        default=["0,0,0,4", "0,0,2,2"],
        help="mixtures: each the numbers of components from the embedding and from every layer "
        "(default: 0,0,0,4 0,0,2,2)",
    )
    parser.add_argument("--text", type=Path, help="a folder of train.txt, valid.txt and test.txt")
    parser.add_argument(
        "--save", type=Path, metavar="FOLDER", help="keep the models in a new folder"
    )
    for name, default in SIZES.items():
        parser.add_argument(name, type=type(default), default=default, help=f"default: {default}")
    return parser


def parse(words: list[str]) -> argparse.Namespace:
    """The arguments, checked; ``components`` are the mixtures' numbers.

    Raises:
        FairseqDocError: a mixture that does not fit the layers, a folder that exists, a missing text.
    """
    args = make_arguments().parse_args(words)
    args.components = [parse_components(text, args.layers) for text in args.doc_components]
    if args.save and args.save.exists():
        raise FairseqDocError(f"{args.save} exists; remove it, or name another folder")
    for split in SPLITS if args.text else ():
        check_input(args.text / f"{split}.txt", again=True)
    return args


def train_all(args: argparse.Namespace, folder: Path) -> dict[str, dict]:
    """Train every row, each in a process of its own, and print the table."""
    if args.text is None:
        args.text = folder / "text"
        args.text.mkdir()
        pydoc_text.write(args.text, lambda line: None)
    found = {}
    print(header())
    for row in (SOFTMAX, *args.doc_components, PLAIN, TRAINED_ON, EXCHANGED):
        found[row] = measured_apart(train_row, row, folder, args)
        print("\n".join(lines(row, found[row])), flush=True)
    return found


def main(words: list[str] | None = None) -> None:
    """Train every row, and print."""
    try:
        args = parse(sys.argv[1:] if words is None else words)
        if args.backend:
            force_backend(args.backend)
        with tables_on_stderr(args.json), tempfile.TemporaryDirectory() as folder:
            print(machine(), flush=True)
            if args.save:
                args.save.mkdir(parents=True)
            found = train_all(args, args.save or Path(folder))
    except FairseqDocError as error:
        sys.exit(f"train: error: {with_flags(error)}")
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
