#!/usr/bin/env bash
# Compare the Gaussian process with random search on a cheap problem: bytes of Python's own documentation, 200 updates
# per trial, 40 trials, three repeats each:
#     examples/equal_tuning/samplers.sh DATA STUDIES
# DATA: the folder of fairseq-doc prepare-lm pydoc --unit byte; STUDIES: a folder for the studies. A second call resumes.
set -euo pipefail
[ $# -ge 2 ] || { echo "expected DATA STUDIES; got $# arguments" >&2; exit 2; }
here="$(cd "$(dirname "$0")" && pwd)"
data="$1" studies="$2"
mkdir -p "$studies"
for seed in 1 2 3; do
    for sampler in gp random; do
        name="$sampler$seed"
        fairseq-doc tune "$here/cheap_space.yaml" --study "$name" --storage "sqlite:///$studies/$name.db" \
            --dir "$studies/$name" --trials 40 --sampler "$sampler" --seed "$seed" -- \
            fairseq-train "$data" --user-dir fairseq_doc --task bptt_language_modeling \
            --arch lstm_melis_lm --hidden-size 64 \
            --criterion doc_cross_entropy --sentence-avg --optimizer adam --adam-betas "(0.0, 0.999)" \
            --adam-eps 1e-9 --clip-norm 10 --batch-size 20 --bptt 50 --updates-per-epoch 200 \
            --lr-scheduler plateau --max-checks 1 --best-checkpoint-metric nll_loss \
            --batch-size-valid 40 --eval-window 8000 --no-epoch-checkpoints --num-workers 0 --seed 1
        fairseq-doc tune --study "$name" --storage "sqlite:///$studies/$name.db" --report "$studies/$name/report" \
            --overwrite
    done
done
