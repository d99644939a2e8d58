#!/usr/bin/env bash
# The size for two cores: 256 wide, Adam, 10 epochs in batches of 32.
exec "$(dirname "$0")/train.sh" --arch lstm_luong_doc_small --doc-components 0,0,2,2 \
    --optimizer adam --lr 0.001 --force-anneal 7 --batch-size 32 --max-epoch 10 \
    --save-dir checkpoints/headline_small "$@"
