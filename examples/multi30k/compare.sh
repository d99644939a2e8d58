#!/usr/bin/env bash
# Train the best settings of systems with three seeds, and compare them on two test sets:
#     examples/multi30k/compare.sh DATA STUDIES RAW1 RAW2 SYSTEM...
# after tune.sh of each. RAW1, RAW2: the raw references of the splits test and test1. A second call resumes.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
source "$here/systems.sh"
source "$here/../studies.sh"
data="$1" studies="$2" raw1="$3" raw2="$4"
shift 4
pair="${data##*.}"
systems=()
for system in "$@"; do
    model=$(model_of "$system")
    best=$(best_of "$system")
    systems+=("$system=$model $best")
done
fairseq-doc compare --dir "$studies/final" --reference "$raw1" "${systems[@]}" -- \
    fairseq-train "$data" -s "${pair%-*}" -t "${pair#*-}" $training $(updates 8)
# The second test set; each seed's systems against the first by paired bootstrap, on both.
for seed in 1 2 3; do
    outputs=() others=()
    for system in "$@"; do
        run="$studies/final/$system-seed$seed"
        outputs+=("$run/generate-test.txt") others+=("$run/generate-test1.txt")
        [ -e "$run/generate-test1.txt" ] || {
            fairseq-generate "$data" --user-dir fairseq_doc --task translation -s "${pair%-*}" -t "${pair#*-}" \
                --path "$run/checkpoints/checkpoint_best.pt" --gen-subset test1 --beam 5 --batch-size 64 \
                --num-workers 0 --cpu >"$run/generate-test1.part"
            mv "$run/generate-test1.part" "$run/generate-test1.txt"
        }
    done
    fairseq-doc bleu "${outputs[@]}" --data "$data" --reference "$raw1"
    fairseq-doc bleu "${others[@]}" --data "$data" --reference "$raw2"
done
