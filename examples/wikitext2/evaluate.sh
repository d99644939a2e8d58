#!/usr/bin/env bash
# Validation and test perplexity of the best model. Further options go to fairseq-eval-lm.
export DATA=${DATA:-data-bin/wikitext2}
exec "$(dirname "$0")/../penn_treebank/evaluate.sh" --path checkpoints/wikitext2/checkpoint_best.pt "$@"
