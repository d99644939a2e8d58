#!/usr/bin/env bash
# Translate with each system's best checkpoints, choose its beam and length penalty, and print tables of the test sets.
#     examples/multi30k/tabulate.sh DATA TEXTS FOLDER SEEDS SYSTEM...
# DATA and TEXTS: see seeds.sh; FOLDER: with SYSTEM-seedN/checkpoints for N from 1 to SEEDS, where the n-best lists go, too.
#   PAIR     the languages (default: the end of DATA)
#   SPLITS   texts: the one for the choice, then the test sets
#   METRICS  those of fairseq-doc rescore; the choice is by the first
set -euo pipefail
[ $# -ge 5 ] || { echo "expected DATA TEXTS FOLDER SEEDS SYSTEM...; got $# arguments" >&2; exit 2; }
data="${1%/}" texts="$2" folder="$3" seeds="$4"
pair="${PAIR:-${data##*.}}"
shift 4
read -ra splits <<<"${SPLITS:-val test_2016_flickr test_2017_flickr}"

for seed in $(seq "$seeds"); do
    for name in "$@"; do
        run="$folder/$name-seed$seed"
        for text in "${splits[@]}"; do
            for beam in 1 5 10; do
                lists="$run/$text.beam$beam.json"
                [ "$lists" -nt "$run/checkpoints/checkpoint_best.pt" ] || {
                    fairseq-doc translate "$data" --path "$run/checkpoints/checkpoint_best.pt" --json --beam $beam \
                        --nbest $beam --input "$texts/$text.${pair%-*}" >"$lists.$$.part"
                    mv "$lists.$$.part" "$lists"
                }
            done
        done
    done
done
exec python "$(dirname "$0")/seeds.py" "$texts" "$folder" "${pair#*-}" "$seeds" "${METRICS:-bleu chrf}" "${splits[*]}" "$@"
