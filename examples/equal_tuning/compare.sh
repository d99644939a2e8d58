#!/usr/bin/env bash
# Train the best settings of systems with three seeds, and go on from each with NT-ASGD until averaging brings no more:
#     examples/equal_tuning/compare.sh DATA STUDIES SYSTEM...
# after tune.sh of each. Writes a table of the tuned and one of the averaged. A second call resumes.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
source "$here/systems.sh"
source "$here/../studies.sh"
data="$1" studies="$2"
shift 2
tuned=() averaged=()
for system in "$@"; do
    model=$(model_of "$system")
    best=$(best_of "$system")
    tuned+=("$system=$model $best")
    # Dropouts and the embedding's width. The learning rate and the penalty were tuned for Adam.
    best=$(best_of "$system" lr l2)
    start="$studies/tuned/$system-seed{seed}/checkpoints/checkpoint_best.pt"
    averaged+=("$system=$model $best --finetune-from-model '$start'")
done
# The seeds train without the extrapolation rule: until six checks bring no new best, or to their end.
fairseq-doc compare --dir "$studies/tuned" "${tuned[@]}" -- fairseq-train "$data" $tuned_training
# Averaging starts after the first check that is worse than an earlier one; four without a new best end it, or 20.
fairseq-doc compare --dir "$studies/averaged" "${averaged[@]}" -- fairseq-train "$data" $every_training \
    --optimizer nt_asgd --lr-scheduler nt_asgd --nonmono 0 --lr 5 --clip-norm 0.25 --weight-decay 1.2e-6 \
    --max-epoch 20 --patience 4
