#!/usr/bin/env bash
# ../penn_treebank/two_cores.sh for WikiText-2 and the published models of its size:
#     examples/wikitext2/two_cores.sh softmax|doc|mos [EPOCHS [options of fairseq-train]]
set -euo pipefail
CORPUS=wikitext2
# shellcheck source=examples/penn_treebank/two_cores.sh
source "$(dirname "$0")/../penn_treebank/two_cores.sh"
