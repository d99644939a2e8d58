#!/usr/bin/env bash
# The same with DOC instead of MoS: one component from the first layer, one from the sum. Not published.
exec "$(dirname "$0")/train_wt2_35m_mogrifier.sh" --doc-components 0,1,0,1 \
    --save-dir checkpoints/melis_wt2_35m_mogrifier_doc "$@"
