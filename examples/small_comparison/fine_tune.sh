#!/usr/bin/env bash
# Fine-tune the models of compare.sh: the same training once more from each, averaged from its first check on.
#     examples/small_comparison/fine_tune.sh DATA FIRST DIR [options of fairseq-doc compare] [-- options of fairseq-train]
# FIRST: compare.sh's folder; DIR: another one, for these trainings and their table. A second call resumes. A system's own
# options win over those of fairseq-train.
set -euo pipefail
[ $# -ge 3 ] || { echo "expected DATA FIRST DIR; got $# arguments" >&2; exit 2; }
source "$(dirname "$0")/systems.sh"
[ "$SCHEDULE" = averaged ] || { echo "expected SCHEDULE averaged for fine-tuning; got $SCHEDULE" >&2; exit 2; }
further=()
for system in "${systems[@]}"; do
    start="$2/${system%%=*}-seed{seed}/checkpoints/checkpoint_best.pt"
    further+=("$system --average-at 1 --max-checks 14 --finetune-from-model '$start'")
done
compare "$1" "$3" "${further[@]}" "${@:4}"
