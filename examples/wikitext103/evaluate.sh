#!/usr/bin/env bash
# Validation and test perplexity of the best model, one column, every token scored. Further options go
# to fairseq-eval-lm.
set -euo pipefail
for split in valid test; do
    fairseq-eval-lm "${DATA:-data-bin/wikitext103}" --user-dir fairseq_doc \
        --task bptt_language_modeling --path checkpoints/wikitext103/checkpoint_best.pt \
        --gen-subset $split --num-workers 0 "$@"
done
