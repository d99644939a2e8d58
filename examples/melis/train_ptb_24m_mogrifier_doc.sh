#!/usr/bin/env bash
# The same with DOC instead of one softmax: one component from the first layer, one from the sum. Not published.
exec "$(dirname "$0")/train_ptb_24m_mogrifier.sh" --num-params 24000000 --doc-components 0,1,0,1 \
    --component-dropout 0.716 --save-dir checkpoints/melis_ptb_24m_mogrifier_doc "$@"
