#!/usr/bin/env bash
# The base system: a single softmax of the attentional vector.
exec "$(dirname "$0")/train.sh" --plain-output --doc-components 0,0,0,1 \
    --save-dir checkpoints/gigaword/plain "$@"
