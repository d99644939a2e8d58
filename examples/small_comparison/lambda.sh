#!/usr/bin/env bash
# Train DOC with other values of lambda, the factor of the term that balances the mixture weights, for the paper's Table 4:
#     examples/small_comparison/lambda.sh DATA DIR [options of fairseq-doc compare] [-- options of fairseq-train]
# DIR: a folder for these trainings and their table; lambda 0.001 is doc2 of compare.sh, with the same INIT_RANGE. A
# second call resumes. A system's own options win over those of fairseq-train.
set -euo pipefail
[ $# -ge 2 ] || { echo "expected DATA DIR; got $# arguments" >&2; exit 2; }
source "$(dirname "$0")/systems.sh"
compare "$1" "$2" "lambda0=$doc2 --doc-lambda 0" "lambda.01=$doc2 --doc-lambda 0.01" --seeds 1 "${@:3}"
