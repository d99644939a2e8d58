#!/usr/bin/env bash
# The published run, fine-tuned until a stage no longer lowers the validation loss ("fin").
exec "$(dirname "$0")/train.sh" --finetune-stages -1 --max-epoch 0 --save-dir checkpoints/wikitext2_fin "$@"
