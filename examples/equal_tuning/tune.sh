#!/usr/bin/env bash
# Tune one system on Penn Treebank with a budget of 1M parameters, and train the best settings with three seeds:
#     examples/equal_tuning/tune.sh SYSTEM DATA STUDIES [options of fairseq-doc tune]
# SYSTEM: lstm1, lstm2, rhn5, nas1 (one softmax), mos3 or doc3 (three components on the LSTM of two layers);
# DATA: the folder of fairseq-doc prepare-lm ptb; STUDIES: a folder for the studies. A second call resumes.
# When all systems are tuned, --trials 14 --enqueue OTHER --enqueue OTHER tries the best settings of others too.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
source "$here/systems.sh"
system="$1" data="$2" studies="$3"
shift 3
model=$(model_of "$system")
mkdir -p "$studies"
study=(--study "$system" --storage "sqlite:///$studies/tune.db" --dir "$studies/$system")
# Four epochs in 20 checks; the learning rate drops after check 16 at the latest. --stop-above: 7 bits are a
# perplexity of 128.
fairseq-doc tune "$here/space.yaml" "${study[@]}" --trials 12 --startup-trials 6 "$@" -- \
    fairseq-train "$data" --user-dir fairseq_doc $model \
    --criterion doc_cross_entropy --sentence-avg --optimizer adam --adam-betas "(0.0, 0.999)" --adam-eps 1e-9 \
    --clip-norm 10 --batch-size 32 --bptt 35 --updates-per-epoch 166 \
    --lr-scheduler plateau --lr-patience 4 --drop-at 16 --max-checks 20 \
    --stop-patience 6 --stop-ramp 8 --stop-above 7.0,6.95 \
    --best-checkpoint-metric nll_loss --batch-size-valid 32 --eval-window 4000 \
    --no-epoch-checkpoints --num-workers 0 --seed 1 --log-format simple --log-interval 166
# The seeds train without the extrapolation rule: until six checks bring no new best, or to their end.
fairseq-doc tune "${study[@]}" --rerun best --seeds 3 -- --stop-above ""
fairseq-doc tune "${study[@]}" --report "$studies/$system/report" --overwrite
