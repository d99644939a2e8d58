#!/usr/bin/env bash
# A size for two cores and a few thousand trees: width 256, Adam with warm-up, 40 epochs with batches of 16,
# balanced components, and the concat attention score, see docs/parsing.md.
exec "$(dirname "$0")/train_parser.sh" --arch lstm_luong_doc_small --attention-score concat --doc-lambda 0.015 \
    --clip-norm 5 --optimizer adam --lr 0.001 --warmup-updates 1000 --force-anneal 25 --lr-shrink 0.8 --batch-size 16 \
    --max-epoch 40 --save-dir checkpoints/wsj/parser_small "$@"
