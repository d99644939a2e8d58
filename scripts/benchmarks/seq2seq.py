"""Training and generation of ``lstm_luong_doc`` against fairseq's own ``lstm_luong_wmt_en_de``.

DATA is a folder of ``fairseq-doc prepare-mt``; the published figures are for Multi30k En-De with 8,000
joint merges. Each system runs in its own process, on the same batches of the training data. The systems
take turns in each of ``--rounds`` rounds, and the fastest time counts. All systems have width 500, 2
layers and dropout 0.3:

    fairseq        lstm_luong_wmt_en_de --encoder-bidirectional, encoder hidden 500 per direction,
                   embeddings, decoder hidden and out-embed 500; cross_entropy
    one component  lstm_luong_doc --plain-output
    i_3=2          two components from the attentional vector
    i_2=i_3=2      four components, two from the upper LSTM layer
    i_2=i_3=2, bfloat16
                   the same with --matmul-precision bfloat16
    products       only the matrix products for the logits of three more components, by torch.mm: in
                   training one in the forward and two in the backward pass. Ours uses oneDNN if it
                   is faster, so the ratios to these products then look better.

A training step is one of fairseq's trainer (loss, gradients, clipping, SGD) over --batch-size
sentences. Generation is fairseq's SequenceGenerator with outputs of exactly --length words, so that all
systems take the same number of steps. The peak of a system is the largest resident size of its process
or, on a GPU, the largest memory allocated there.
"""

import logging
import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.sequence_generator import SequenceGenerator
from fairseq.trainer import Trainer
from fairseq.utils import move_to_cuda

import fairseq_doc
from benchmarks.tools import measured_apart, resident_bytes, timed
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.options import REQUIRED, option

COMMON = """--task translation --optimizer sgd --lr 0.1 --sentence-avg --clip-norm 5 --dropout 0.3
    --seed 1 --num-workers 0 --distributed-world-size 1 --no-progress-bar"""
FAIRSEQ = """--arch lstm_luong_wmt_en_de --encoder-bidirectional --encoder-layers 2 --decoder-layers 2
    --encoder-hidden-size 500 --encoder-embed-dim 500 --decoder-embed-dim 500
    --decoder-hidden-size 500 --decoder-out-embed-dim 500 --encoder-dropout-out 0.3
    --decoder-dropout-out 0.3 --criterion cross_entropy"""
OURS = """--arch lstm_luong_doc --criterion doc_cross_entropy --doc-balance published
    --doc-lambda 0.001"""
SYSTEMS = {
    "fairseq": FAIRSEQ,
    "one component": f"{OURS} --plain-output --doc-components 0,0,0,1",
    "i_3=2": f"{OURS} --doc-components 0,0,0,2",
    "i_2=i_3=2": f"{OURS} --doc-components 0,0,2,2",
    "i_2=i_3=2, bfloat16": f"{OURS} --doc-components 0,0,2,2 --matmul-precision bfloat16",
}
MORE_COMPONENTS = 3  # how many more components "i_2=i_3=2" has than "one component"
WIDTH = 500
BEAMS = (1, 5)


@dataclass(frozen=True, kw_only=True)
class Options:
    data: str = option("folder written by fairseq-preprocess", REQUIRED, positional=True)
    source_lang: str = option("source language", "en")
    target_lang: str = option("target language", "de")
    batch_size: int = option("sentences", 128, least=1)
    batches: int = option("batches measured", 10, least=1)
    warm_up: int = option("batches before those that are measured", 2)
    length: int = option("words per output", 15, least=1)
    cpu: bool = option("do not use a GPU", False)
    rounds: int = option("measurements per system", 2, least=1)
    threads: int | None = option("threads (default: all cores)", least=1)


class Worker:
    """One system in this process: its trainer and its batches."""

    def __init__(self, system, args):
        logging.disable(logging.INFO)
        fairseq_doc.register()
        torch.set_num_threads(args.threads or os.cpu_count() or 1)
        self.system, self.args = system, args
        words = f"""-s {args.source_lang} -t {args.target_lang} {COMMON}
            --batch-size {args.batch_size} {"--cpu" if args.cpu else ""} {SYSTEMS.get(system, FAIRSEQ)}""".split()
        parser = options.get_training_parser()
        cfg = convert_namespace_to_omegaconf(
            options.parse_args_and_arch(parser, [args.data, *words])
        )
        self.task = tasks.setup_task(cfg.task)
        self.task.load_dataset("train")
        # The first batches are for warm-up, since their shapes are new to allocator and kernel caches.
        self.batches = self._batches(args.batches + args.warm_up)
        self.device = "cuda" if torch.cuda.is_available() and not args.cpu else "cpu"
        if self.device == "cuda":
            self.batches = [move_to_cuda(batch) for batch in self.batches]
        if system in SYSTEMS:
            model = self.task.build_model(cfg.model)
            self.trainer = Trainer(cfg, self.task, model, self.task.build_criterion(cfg.criterion))

    def _batches(self, count):
        iterator = self.task.get_batch_iterator(
            self.task.dataset("train"), max_sentences=self.args.batch_size, seed=1
        ).next_epoch_itr(shuffle=True)
        if len(iterator) < count:
            raise FairseqDocError(
                f"expected {count} batches in the data, got {len(iterator)}; give a smaller --batches"
            )
        return [next(iterator) for _ in range(count)]

    def measure(self):
        """{quantity: seconds or MB}, and the number of tokens in the measured batches."""
        measure = self._products if self.system == "products" else self._system
        tokens = sum(batch["ntokens"] for batch in self.batches[self.args.warm_up :])
        found = measure()
        on_gpu = self.device == "cuda"
        peak = torch.cuda.max_memory_allocated() if on_gpu else resident_bytes()[1]
        return {**found, "tokens": tokens, "MB": peak // 2**20}

    def _over_batches(self, seconds):
        """The sum of a function over the measured batches."""
        return sum([seconds(batch) for batch in self.batches][self.args.warm_up :])

    def _system(self):
        self.trainer.lr_step_begin_epoch(1)
        train = self.trainer.train_step
        found = {"train": self._over_batches(lambda batch: timed(lambda: train([batch])))}
        model, words = self.trainer.model.eval(), self.task.target_dictionary
        for beam in BEAMS:
            length = {"max_len_b": self.args.length, "min_len": self.args.length}
            generator = SequenceGenerator([model], words, beam_size=beam, **length)

            def generation(batch, generate=generator.generate):
                return timed(lambda: generate([model], batch))

            with torch.no_grad():
                found[f"beam {beam}"] = self._over_batches(generation)
        return found

    def _products(self):
        weight = torch.randn(len(self.task.target_dictionary), WIDTH, device=self.device)

        def training(batch):
            vectors = weight.new_empty(MORE_COMPONENTS * batch["ntokens"], WIDTH).normal_()
            gradients = weight.new_empty(len(vectors), len(weight)).normal_()
            products = (vectors, weight.t()), (gradients, weight), (gradients.t(), vectors)
            return timed(lambda: [torch.mm(*factors) for factors in products])

        def generation(batch, beam):
            rows = MORE_COMPONENTS * beam * batch["nsentences"]
            vectors = weight.new_empty(rows, WIDTH).normal_()
            steps = range(self.args.length + 1)
            return timed(lambda: [torch.mm(vectors, weight.t()) for _ in steps])

        found = {"train": self._over_batches(training)}
        for beam in BEAMS:
            found[f"beam {beam}"] = self._over_batches(partial(generation, beam=beam))
        return found


def measure(system, settings):
    """The measurements of :class:`Worker` for a system."""
    return Worker(system, settings).measure()


def fastest(rounds):
    """The shortest of all measured times, and the largest peak."""
    best = {key: min(found[key] for found in rounds) for key in rounds[0]}
    best["MB"] = max(found["MB"] for found in rounds)
    return best


def ratios(found):
    """The ratios between systems; for generation those of the worse beam."""
    plain, four, bare = found["one component"], found["i_2=i_3=2"], found["products"]
    narrow = found["i_2=i_3=2, bfloat16"]
    beams = [f"beam {beam}" for beam in BEAMS]
    return {
        "train_over_fairseq": found["fairseq"]["train"] / plain["train"],
        "generate_over_fairseq": min(found["fairseq"][b] / plain[b] for b in beams),
        "extra_train_over_products": (four["train"] - plain["train"]) / bare["train"],
        "extra_generate_over_products": max((four[b] - plain[b]) / bare[b] for b in beams),
        "train_bfloat16_over_float32": four["train"] / narrow["train"],
        "generate_bfloat16_over_float32": min(four[b] / narrow[b] for b in beams),
    }


def table(found, args):
    """The lines of the table."""
    sentences = args.batches * args.batch_size
    heads = ["tokens/s", *(f"sentences/s, beam {beam}" for beam in BEAMS), "peak MB"]
    lines = [f"{'':20}" + "".join(f"{head:>21}" for head in heads)]
    for name, of in found.items():
        speeds = [of["tokens"] / of["train"]] + [sentences / of[f"beam {beam}"] for beam in BEAMS]
        if name == "products":  # a time, not a speed
            cells = [f"{1000 * of['train'] / args.batches:.0f} ms/step"]
            cells += [f"{1000 * of[f'beam {beam}'] / args.batches:.0f} ms/batch" for beam in BEAMS]
        else:
            cells = [f"{speed:,.0f}" if speed > 100 else f"{speed:.1f}" for speed in speeds]
            cells.append(f"{of['MB']:,}")
        lines.append(f"{name:20}" + "".join(f"{cell:>21}" for cell in cells))
    return lines


def run(settings):
    """Result: the ratios; ``systems``: {system: seconds and MB of its fastest round}."""
    if not Path(settings.data, f"dict.{settings.target_lang}.txt").is_file():
        raise FairseqDocError(f"expected a folder of prepare-mt, got {settings.data}")
    rounds: dict[str, list[dict]] = {name: [] for name in [*SYSTEMS, "products"]}
    for number in range(settings.rounds):
        for name, of_rounds in rounds.items():
            print(f"round {number + 1} of {settings.rounds}: {name}", file=sys.stderr, flush=True)
            of_rounds.append(measured_apart(measure, name, settings))
    found = {name: fastest(of) for name, of in rounds.items()}
    print(*table(found, settings), sep="\n")
    for name, ratio in ratios(found).items():
        print(f"{name} {ratio:.2f}", flush=True)
    return {**ratios(found), "systems": found}
