#!/usr/bin/env bash
# Rerank n-best parses: the weight of the parser's own score is tuned on the development lists, DEV, and
# used on the test lists, TEST. MODEL is a checkpoint, or several for an ensemble: a.pt:b.pt; DATA the folder
# that scripts/prepare_parsing.sh wrote, with the gold trees; OUT the folder to write. Further options go to
# fairseq-doc rerank, such as --score-base 2.
set -euo pipefail
data=${DATA:-data-bin/wsj}
model=${MODEL:-checkpoints/wsj/doc/checkpoint_best.pt}
for name in DEV TEST; do
    [ -n "${!name:-}" ] || { echo "rerank: expected $name=LISTS, an n-best file, gzip or not" >&2; exit 1; }
done
out=${OUT:-$(dirname "${model%%:*}")/reranked}
mkdir -p "$out"
fairseq-doc rerank "$data" "$DEV" --path "$model" --tune "$data/trees/valid.mrg" --scores "$out/dev.scores" \
    --json "$@" >"$out/dev.json"
weight=$(python -c 'import json, sys; print(json.load(sys.stdin)["weight"])' <"$out/dev.json")
echo "rerank: weight $weight, tuned on $DEV"
for at in 0 "$weight"; do # the language model alone, then with the parser's score
    fairseq-doc rerank "$data" "$TEST" --path "$model" --weight "$at" --scores "$out/test.scores" \
        --output "$out/test.best" --overwrite "$@" >/dev/null
    echo "rerank: $TEST, weight $at:"
    fairseq-doc evalb "$data/trees/test.mrg" "$out/test.best"
done
