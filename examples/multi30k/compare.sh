#!/usr/bin/env bash
# Train the best settings of systems with three seeds, and compare them on two test sets:
#     examples/multi30k/compare.sh DATA STUDIES RAW1 RAW2 SYSTEM... [options of fairseq-doc compare]
# after tune.sh of each. RAW1, RAW2: the raw references of the splits test and test1. A second call resumes. The system
# linear is not tuned: it has the best settings of i3.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
source "$here/systems.sh"
source "$here/../studies.sh"
data="$1" studies="$2" raw1="$3" raw2="$4"
shift 4
pair="${data##*.}"
for file in "$raw2" "$data/test1.$pair.${pair#*-}.bin"; do # used last, after hours
    [ -s "$file" ] || { echo "expected $file, for the second test set; got no such file, or an empty one" >&2; exit 1; }
done
names=() systems=()
while [ $# -gt 0 ] && [[ $1 != -* ]]; do
    model=$(model_of "$1")
    best=$(best_of "${1/linear/i3}")
    names+=("$1") systems+=("$1=$model $best")
    shift
done
fairseq-doc compare --dir "$studies/final" --reference "$raw1" "${systems[@]}" "$@" -- \
    fairseq-train "$data" -s "${pair%-*}" -t "${pair#*-}" $training $(updates 8)
# The second test set; each seed's systems against the first by paired bootstrap, on both.
seeds=$(python -c 'import json, sys; print(*json.load(open(sys.argv[1]))["systems"][sys.argv[2]]["seeds"])' \
    "$studies/final/comparison.json" "${names[0]}")
for seed in $seeds; do
    outputs=() others=()
    for system in "${names[@]}"; do
        run="$studies/final/$system-seed$seed"
        outputs+=("$run/generate-test.txt") others+=("$run/generate-test1.txt")
        [ -e "$run/generate-test1.txt" ] || {
            fairseq-generate "$data" --user-dir fairseq_doc --task translation -s "${pair%-*}" -t "${pair#*-}" \
                --path "$run/checkpoints/checkpoint_best.pt" --gen-subset test1 --beam 5 --batch-size 64 \
                --num-workers 0 --cpu >"$run/generate-test1.part"
            mv "$run/generate-test1.part" "$run/generate-test1.txt"
        }
    done
    fairseq-doc bleu "${outputs[@]}" --lang "${pair#*-}" --data "$data" --reference "$raw1"
    fairseq-doc bleu "${others[@]}" --lang "${pair#*-}" --data "$data" --reference "$raw2"
done
