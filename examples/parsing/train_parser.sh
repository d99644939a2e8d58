#!/usr/bin/env bash
# An encoder-decoder that writes the symbols of a sentence's tree, for the paper's last row: a base parser
# whose lists a language model reranks. Both directions of the encoder go on with their sum after every
# layer, and the output matrix is the embedding. DATA is what scripts/prepare_parsing.sh --pairs wrote. Further
# options go to fairseq-train.
set -euo pipefail
fairseq-train "${DATA:-data-bin/wsj}/pairs" --user-dir "${USER_DIR:-fairseq_doc}" \
    --task translation --source-lang words --target-lang symbols \
    --arch lstm_luong_doc --doc-components 0,0,2,2 --mix-directions --share-decoder-input-output-embed \
    --criterion doc_cross_entropy --doc-balance published --doc-lambda 0.001 --sentence-avg \
    --optimizer adam --lr 0.001 --lr-scheduler fixed --force-anneal 25 --lr-shrink 0.7 \
    --clip-norm 5 --batch-size 16 --max-epoch 40 --seed 1 --num-workers 0 --distributed-world-size 1 \
    --save-dir checkpoints/wsj/parser --no-epoch-checkpoints \
    --log-format simple --log-interval 200 "$@"
