#!/usr/bin/env bash
# A mixture of softmaxes as the reranker.
export DATA=${DATA:-data-bin/wsj}
exec "$(dirname "$0")/../penn_treebank/train_mos.sh" --save-dir checkpoints/wsj/mos "$@"
