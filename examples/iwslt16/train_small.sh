#!/usr/bin/env bash
# A size for two cores, for example for Multi30k: width 256, i_3 = 2 with linear components, Adam, batches of 32. See
# docs/translation.md.
exec "$(dirname "$0")/train.sh" --arch lstm_luong_doc_small --doc-components 0,0,0,2 --doc-activation linear \
    --matmul-precision bfloat16 --doc-lambda 0.1 --label-smoothing 0.1 --optimizer adam --lr 0.004 --warmup-updates 500 \
    --force-anneal 5 --clip-norm 1 --batch-size 32 --max-epoch 9 \
    --save-dir "checkpoints/small.${SRC:-en}-${TGT:-de}" "$@"
