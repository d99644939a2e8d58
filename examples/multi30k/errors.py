"""Search or model errors: how likely a model finds references, its own outputs and another's.

python errors.py DATA SOURCES REFERENCES FOLDER SEEDS SYSTEM OTHER, for the split that REFERENCES
names. FOLDER is second/ in the folder of seeds.sh, with n-best lists and checkpoints. Prints, as means over lines and seeds:
log P of the three (natural logarithm per line, beam 5, length penalty 1), and the share of lines where the model ranks the
reference, or the other system's output, above its own best, that is, where its search missed a better one. Ranks are by
log P / units, as in the search. References and the other system's outputs are cut into units again.
"""

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import LanguagePairDataset

from fairseq_doc.errors import check_count
from fairseq_doc.evaluation.translation import Translator, load_translator
from fairseq_doc.files import read_text, text_lines

BATCH = 32
HEADS = "| model | log P: own | reference | % above own | the other's | % above own |"


def main(data: str, sources: str, references: str, folder: str, seeds: str, *systems: str) -> None:
    """Print one row per system."""
    source_lines, targets = list(text_lines(sources)), list(text_lines(references))
    print(HEADS, "|---" * 6 + "|", sep="\n")
    for system, other in (systems, reversed(systems)):
        rows = []
        for seed in range(1, int(seeds) + 1):
            run = Path(folder) / f"{system}-seed{seed}"
            translator = load_translator(str(run / "checkpoints/checkpoint_best.pt"), data)
            name = f"{Path(references).stem}.beam5.json"
            own = best_of(run / name)
            others = [one["text"] for one in best_of(Path(folder) / f"{other}-seed{seed}" / name)]
            check_count(name, own, "the references", targets, ": remove it and translate again")
            total, length = (np.array([one[key] for one in own]) for key in ("log_prob", "tokens"))
            row = [total.mean()]
            for texts in (targets, others):
                score, units = log_probs(translator, source_lines, texts)
                differs = np.array([a != b["text"] for a, b in zip(texts, own, strict=True)])
                above = differs & (score / units > total / length)
                row += [score.mean(), 100 * above.mean()]
            rows.append(row)
        means = np.mean(rows, axis=0)
        print(f"| `{system}` | {' | '.join(f'{mean:.2f}' for mean in means)} |")


def best_of(path: Path) -> list[dict[str, Any]]:
    """The best output of each line, with a length penalty of 1."""
    return [line["hypotheses"][0] for line in json.loads(read_text(path))["lines"]]


def log_probs(
    translator: Translator, sources: list[str], targets: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Natural log P of each target given its source, and the units of the target, with its end mark."""
    task, form = translator.task, translator.target_form
    scorer = task.build_generator(translator.models, Namespace(score_reference=True))
    read = [source.indices for source in translator.sources(sources)]
    dictionary = task.target_dictionary
    units = [form.units(form.words(text)).split() for text in targets]
    words = [torch.tensor([*map(dictionary.index, own), dictionary.eos()]) for own in units]
    pairs = LanguagePairDataset(
        read, [len(x) for x in read], task.source_dictionary,
        words, [len(x) for x in words], dictionary,
    )  # fmt: skip
    total = np.zeros(len(words))
    order = np.argsort([len(x) for x in read])
    for start in range(0, len(order), BATCH):
        sample = pairs.collater([pairs[place] for place in order[start : start + BATCH]])
        found = task.inference_step(scorer, translator.models, sample)
        for place, (best,) in zip(sample["id"].tolist(), found, strict=True):
            total[place] = best["positional_scores"].sum().item()
    return total, np.array([len(x) for x in words])


if __name__ == "__main__":
    if len(sys.argv) != 8:
        sys.exit(__doc__)
    main(*sys.argv[1:])
