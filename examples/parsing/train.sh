#!/usr/bin/env bash
# The published reranker (Table 11): the Penn Treebank language model's run, on the symbols of trees. DATA is
# the folder that fairseq-doc prepare-parsing wrote. Further options go to fairseq-train and override these.
export DATA=${DATA:-data-bin/wsj}
exec "$(dirname "$0")/../penn_treebank/train.sh" --save-dir checkpoints/wsj/doc "$@"
