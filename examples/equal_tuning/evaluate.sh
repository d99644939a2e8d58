#!/usr/bin/env bash
# Validation and test perplexity of the three seeds of a system, also after average.sh; one column, every token scored:
#     examples/equal_tuning/evaluate.sh SYSTEM DATA STUDIES
set -euo pipefail
system="$1" data="$2" studies="$3"
found=0
for checkpoint in "$studies/$system"/{rerun-*/checkpoints,averaged-*}/checkpoint_best.pt; do
    [ -e "$checkpoint" ] || continue
    found=1
    echo "$checkpoint"
    for split in valid test; do
        fairseq-doc eval-lm "$data" --path "$checkpoint" --gen-subset $split --no-progress-bar
    done
done
[ $found = 1 ] || { echo "expected checkpoints of tune.sh in $studies/$system; got none" >&2; exit 1; }
