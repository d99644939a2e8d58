#!/usr/bin/env bash
# A plain AWD-LSTM as the reranker.
export DATA=${DATA:-data-bin/wsj}
exec "$(dirname "$0")/../penn_treebank/train_awd.sh" --save-dir checkpoints/wsj/awd "$@"
