#!/usr/bin/env bash
# A size for two cores: width 256, linear components, Adam, batches of 32.
exec "$(dirname "$0")/train.sh" --arch lstm_luong_doc_small --doc-activation linear --matmul-precision bfloat16 \
    --doc-lambda 0.1 --optimizer adam --lr 0.004 --warmup-updates 500 --force-anneal 4 --clip-norm 5 --batch-size 32 \
    --max-epoch 7 --save-dir checkpoints/headline_small "$@"
