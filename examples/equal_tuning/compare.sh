#!/usr/bin/env bash
# Train the best settings of systems with three seeds, then continue each with NT-ASGD until averaging no longer helps:
#     examples/equal_tuning/compare.sh DATA STUDIES SYSTEM...
# Run tune.sh for each system first. Writes a table of the tuned models and one of the averaged. A second call resumes.
set -euo pipefail
[ $# -ge 3 ] || { echo "expected DATA STUDIES SYSTEM...; got $# arguments" >&2; exit 2; }
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
    # Only the dropout rates and the embedding's width: the learning rate and the penalty were tuned for Adam.
    best=$(best_of "$system" lr l2)
    start="$studies/tuned/$system-seed{seed}/checkpoints/checkpoint_best.pt"
    averaged+=("$system=$model $best --finetune-from-model '$start'")
done
# As in tune.sh, a training ends after more than six checks without a new best, sooner during the first eight, or after 20.
fairseq-doc compare --dir "$studies/tuned" "${tuned[@]}" -- fairseq-train "$data" $tuned_training
# Averaging starts after the first check that is worse than an earlier one; it ends after four checks without a new
# best, or after 20.
fairseq-doc compare --dir "$studies/averaged" "${averaged[@]}" -- fairseq-train "$data" $every_training \
    --optimizer nt_asgd --lr-scheduler nt_asgd --nonmono 0 --lr 5 --clip-norm 0.25 --weight-decay 1.2e-6 \
    --max-epoch 20 --patience 4
