#!/usr/bin/env bash
# The published reranker (Table 11): the Penn Treebank language model's run, on the symbols of trees. Further
# options go to fairseq-train and overrule these; DATA is the folder that scripts/prepare_parsing.sh wrote,
# USER_DIR the package.
export DATA=${DATA:-data-bin/wsj}
exec "$(dirname "$0")/../penn_treebank/train.sh" --save-dir checkpoints/wsj/doc "$@"
