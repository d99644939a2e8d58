#!/usr/bin/env bash
# The size for two cores and a few thousand trees: 256 wide, Adam, 40 epochs in batches of 16.
exec "$(dirname "$0")/train_parser.sh" --arch lstm_luong_doc_small --optimizer adam --lr 0.001 \
    --force-anneal 25 --lr-shrink 0.8 --batch-size 16 --max-epoch 40 --save-dir checkpoints/wsj/parser_small "$@"
