#!/usr/bin/env bash
# The run of train_fin.sh with partial shuffling (Press, 2019), also during fine-tuning.
exec "$(dirname "$0")/train_fin.sh" --partial-shuffle --save-dir checkpoints/ptb_fin_partial_shuffle "$@"
