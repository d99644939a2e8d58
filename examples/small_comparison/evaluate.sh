#!/usr/bin/env bash
# Evaluate the models of a comparison, for each system: the seeds as an ensemble, and of seed 1 the rank of the
# log-probabilities, the mixture weights by layer, a cache and dynamic evaluation.
#     examples/small_comparison/evaluate.sh DATA DIR SYSTEM...
# DATA, DIR: as for compare.sh or fine_tune.sh. Results that take long are kept in DIR and beside the models; a second call resumes.
set -euo pipefail
[ $# -ge 3 ] || { echo "expected DATA DIR SYSTEM...; got $# arguments" >&2; exit 2; }
here="$(dirname "$0")"
data="$1" folder="$2"
for system in "${@:3}"; do
    models=("$folder/$system"-seed*/checkpoints/checkpoint_best.pt)
    echo "# $system, seeds: ${#models[@]}"
    first="$folder/$system-seed1/checkpoints/checkpoint_best.pt"
    for split in valid test; do
        fairseq-doc eval-lm "$data" --path "$(IFS=:; echo "${models[*]}")" --gen-subset $split
    done
    rank="$folder/$system.rank.txt"
    if ! [ "$rank" -nt "$first" ]; then
        fairseq-doc rank "$data" --path "$first" --gen-subset valid >"$rank.part"
        mv "$rank.part" "$rank"
    fi
    cat "$rank"
    [ "$system" = softmax ] || fairseq-doc weights "$data" --path "$first" --gen-subset valid
    "$here/../beyond/evaluate.sh" "$first" "$data" 20
done
