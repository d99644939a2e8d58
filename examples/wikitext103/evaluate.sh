#!/usr/bin/env bash
# Validation and test perplexity of the best model. Further options go to fairseq-eval-lm.
export DATA=${DATA:-data-bin/wikitext103}
exec "$(dirname "$0")/../penn_treebank/evaluate.sh" --path checkpoints/wikitext103/checkpoint_best.pt "$@"
