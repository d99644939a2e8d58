#!/usr/bin/env bash
# Perplexity of a model as it is, with a cache and with dynamic evaluation, both tuned on valid:
#     examples/beyond/evaluate.sh MODEL DATA
set -euo pipefail
model="$1" data="$2"
evaluate() { fairseq-doc eval-lm "$data" --path "$model" "$@"; }
# The value of a setting in the JSON object on standard input: cache theta, for example.
setting() { python -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]][sys.argv[2]])' "$@"; }

for split in valid test; do
    evaluate --gen-subset $split
done
cache=(--cache-window 2000)
found=$(evaluate --gen-subset valid "${cache[@]}" --cache-search --json)
echo "$found"
theta=$(setting cache theta <<<"$found") share=$(setting cache lambda <<<"$found")
evaluate --gen-subset test "${cache[@]}" --cache-theta "$theta" --cache-lambda "$share"
for segment in 5 20; do
    dynamic=(--dynamic --dynamic-segment $segment)
    found=$(evaluate --gen-subset valid "${dynamic[@]}" --dynamic-search --json)
    echo "$found"
    rate=$(setting dynamic rate <<<"$found") decay=$(setting dynamic decay <<<"$found")
    evaluate --gen-subset test "${dynamic[@]}" --dynamic-rate "$rate" --dynamic-decay "$decay"
done
