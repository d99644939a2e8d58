#!/usr/bin/env bash
# Two components, both from the attentional vector: i_3 = 2.
exec "$(dirname "$0")/train.sh" --doc-components 0,0,0,2 \
    --save-dir "checkpoints/iwslt16.${SRC:-en}-${TGT:-de}/i3" "$@"
