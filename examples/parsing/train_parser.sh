#!/usr/bin/env bash
# An encoder-decoder that generates the symbols of a sentence's tree: the base parser of the paper's best result (Table 11,
# F1 94.47), whose n-best lists a language model reranks. It differs from the translation run in two ways: the sum of both
# directions of the encoder feeds the next layer, and the output matrix is tied to the embedding. DATA is the folder
# that fairseq-doc prepare-parsing --pairs wrote. Further options go to fairseq-train and override these.
export DATA=${DATA:-data-bin/wsj}/pairs SRC=words TGT=symbols
exec "$(dirname "$0")/../iwslt16/train.sh" --mix-directions --share-decoder-input-output-embed \
    --save-dir checkpoints/wsj/parser "$@"
