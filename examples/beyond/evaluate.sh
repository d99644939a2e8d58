#!/usr/bin/env bash
# Perplexity of a model as it is, with a cache and with dynamic evaluation, tuned on valid:
#     examples/beyond/evaluate.sh MODEL DATA
set -euo pipefail
model="$1" data="$2"
evaluate() { fairseq-doc eval-lm "$data" --path "$model" --no-progress-bar "$@"; }
for split in valid test; do
    evaluate --gen-subset $split
    evaluate --gen-subset $split --cache-window 2000 --cache-search
    evaluate --gen-subset $split --dynamic --dynamic-search
done
