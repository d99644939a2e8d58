#!/usr/bin/env bash
# The size for two cores: 256 wide, Adam, batches of 32. For Multi30k, say.
exec "$(dirname "$0")/train.sh" --arch lstm_luong_doc_small \
    --doc-lambda 1 --clip-norm 5 --optimizer adam --lr 0.001 --warmup-updates 2000 --batch-size 32 \
    --save-dir "checkpoints/small.${SRC:-en}-${TGT:-de}" "$@"
