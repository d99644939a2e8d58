#!/usr/bin/env bash
# The size for two cores: 256 wide, Adam, batches of 32.
exec "$(dirname "$0")/train.sh" --arch lstm_luong_doc_small \
    --doc-lambda 0.1 --optimizer adam --lr 0.001 --warmup-updates 2000 --batch-size 32 \
    --save-dir checkpoints/headline_small "$@"
