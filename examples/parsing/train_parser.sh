#!/usr/bin/env bash
# An encoder-decoder that writes the symbols of a sentence's tree, for the paper's last row: a base parser
# whose lists a language model reranks. Both directions of the encoder go on with their sum after every
# layer, and the output matrix is the embedding; the rest is the translation runs'. DATA is what
# scripts/prepare_parsing.sh --pairs wrote. Further options go to fairseq-train.
export DATA=${DATA:-data-bin/wsj}/pairs SRC=words TGT=symbols
exec "$(dirname "$0")/../iwslt16/train.sh" --mix-directions --share-decoder-input-output-embed \
    --save-dir checkpoints/wsj/parser "$@"
