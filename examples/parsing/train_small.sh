#!/usr/bin/env bash
# A size for two cores and a few thousand trees: layers of widths 240, 240 and 160.
exec "$(dirname "$0")/train.sh" --arch lstm_doc_lm_small --doc-components 0,0,2,6 --nonmono 5 --max-epoch 30 \
    --save-dir checkpoints/wsj/small "$@"
