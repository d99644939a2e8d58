#!/usr/bin/env bash
# Systems with several seeds on Debian's headlines, from scratch and grown, 128 wide: see ../multi30k/seeds.sh.
#     examples/gigaword/seeds.sh DATA TEXTS FOLDER SEEDS SYSTEM... [options of fairseq-doc compare]
export PAIR=src-tgt SPLITS="${SPLITS:-valid test}" METRICS="${METRICS:-rouge1 rouge2 rougeL}" UPDATES="${UPDATES:-1047}"
exec "$(dirname "$0")/../multi30k/seeds.sh" "$@"
