#!/usr/bin/env bash
# Validation and test perplexity of the best model, in one column with every token scored. Further options go
# to fairseq-eval-lm.
set -euo pipefail
for split in valid test; do
    fairseq-eval-lm "${DATA:-data-bin/ptb}" --user-dir fairseq_doc \
        --task bptt_language_modeling --path checkpoints/ptb/checkpoint_best.pt \
        --gen-subset $split --num-workers 0 "$@"
done
