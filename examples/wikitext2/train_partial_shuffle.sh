#!/usr/bin/env bash
# The run of train.sh with partial shuffling (Press, 2019).
exec "$(dirname "$0")/train.sh" --partial-shuffle --save-dir checkpoints/wikitext2_partial_shuffle "$@"
