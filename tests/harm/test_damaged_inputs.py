"""Commands that read a damaged file end with one line of error, or with a result.

Where checksums protect the file, as in a data folder and a checkpoint, only the right result is accepted.
"""

import random

import pytest
from harm import damage
from harm.endings import LIMITED, WHOLE, check_ending, check_files, listing, outcome
from harm.inputs import GENERATE, TRAIN_LM, TRAIN_MT, USER_DIR

LM_TASK = f"{USER_DIR} --task bptt_language_modeling --num-workers 0 --cpu --path a.pt"
SHORT = "--cpu --no-progress-bar --json"
RERANK = f"fairseq-doc rerank data dev.nbest --path lm.pt {SHORT}"
RESCORE = "fairseq-doc rescore data lists --first-pass first --metric wer --tune --reference said"
SCORED = "--reference raw/test.de --lang de --bootstrap 100 --json"
TARGETS = {  # group: [(command, the files that are damaged, one at a time)]
    "lm": [
        (f"fairseq-eval-lm data {LM_TASK}", "a.pt data/test.bin data/test.idx data/SHA256SUMS"),
        (f"fairseq-eval-lm plain {LM_TASK}", "plain/dict.txt plain/test.bin plain/test.idx"),
        (f"fairseq-validate data {LM_TASK} --batch-size 2", "a.pt"),
        (
            f"fairseq-train data {TRAIN_LM} --seed 1 --max-update 8 --restore-file middle.pt",
            "middle.pt data/dict.txt data/train.bin",
        ),
        (f"fairseq-train plain {TRAIN_LM} --max-update 3", "plain/train.bin plain/train.idx"),
        (f"fairseq-doc eval-lm data --path a.pt:b.pt {SHORT}", "a.pt data/test.bin data/test.idx"),
        (
            f"fairseq-doc score data --path a.pt --input lines.txt {SHORT}",
            "a.pt data/dict.txt lines.txt",
        ),
        (f"fairseq-doc pairs data pairs.jsonl --path a.pt {SHORT}", "pairs.jsonl"),
        (f"{RESCORE} --path a.pt --output new {SHORT}", "lists first said"),
        ("fairseq-doc prepare-lm text text new --json", "text/train.txt text/valid.txt"),
        ("fairseq-doc curves new.png a=train.log b=train.json --json", "train.log train.json"),
    ],
    "trees": [
        (f"{RERANK} --output new", "lm.pt data/dict.txt dev.nbest"),
        (f"{RERANK} --output-nbest new --tune dev.mrg --prm rules.prm", "dev.mrg rules.prm"),
        (
            "fairseq-doc evalb dev.mrg best.mrg --prm rules.prm --json",
            "best.mrg dev.mrg rules.prm",
        ),
        ("fairseq-doc evalb test.mrg test.nbest.gz --json", "test.nbest.gz"),
        (
            "fairseq-doc collect-parses test.out --sentences test.mrg --output new --json",
            "test.mrg test.out",
        ),
        ("fairseq-doc prepare-parsing . new --threshold 2 --json", "train.mrg"),
    ],
    "translation": [
        (
            f"{GENERATE} --beam 2",
            "mt.pt data/dict.en.txt data/test.en-de.en.bin data/test.en-de.de.idx data/bpe.codes",
        ),
        (
            f"fairseq-train data {TRAIN_MT} --max-epoch 2 --restore-file mt.pt",
            "mt.pt data/dict.de.txt data/train.en-de.de.idx",
        ),
        (
            f"fairseq-doc translate data --path mt.pt --input lines.txt {SHORT}",
            "mt.pt data/settings.json data/bpe.codes lines.txt",
        ),
        ("fairseq-doc prepare-mt en de raw new --merges 40 --joint --json", "raw/train.en"),
        (f"fairseq-doc bleu generated.out other.out {SCORED}", "generated.out raw/test.de"),
        (f"fairseq-doc rouge generated.out {SCORED}", "generated.out raw/test.de"),
    ],
}
CASES = [
    pytest.param(group, command, file, id=f"{' '.join(command.split()[:2])}, {file}")
    for group, targets in TARGETS.items()
    for command, files in targets
    for file in files.split()
]


RESULTS = {}  # {command: its result with undamaged inputs}, as far as they were needed


@pytest.mark.parametrize("group, command, file", CASES)
def test_a_damaged_file(group, command, file, server, inputs, case_of):
    """By one kind of damage, or in the whole form by all, each at three places."""
    original = (inputs(group) / file).read_bytes()
    rng = random.Random(f"{command} {file}")
    kinds = damage.kinds_for(file)
    for kind in 3 * kinds if WHOLE else [rng.choice(kinds)]:
        case = case_of(group)
        (case / file).write_bytes(kind(original, rng))
        before = listing(case)
        result = server.run(command, case, before=LIMITED)
        check_ending(result)
        check_files(result, before, listing(case))
        is_protected = file.startswith("data/") or file.endswith(".pt")
        if result.status == 0 and is_protected:
            found = outcome(result, case)
            if command not in RESULTS:
                whole = case_of(group)
                RESULTS[command] = outcome(server.run(command, whole), whole)
            assert found == RESULTS[command]
