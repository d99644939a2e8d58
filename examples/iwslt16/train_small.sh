#!/usr/bin/env bash
# The size for two cores, for example for Multi30k: 256 wide, batches of 32.
exec "$(dirname "$0")/train.sh" --arch lstm_luong_doc_small --batch-size 32 \
    --save-dir "checkpoints/small.${SRC:-en}-${TGT:-de}" "$@"
