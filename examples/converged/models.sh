# The compared language models, to be sourced.

# model_of SYSTEM: its options of fairseq-train. Embedding and components are 100 wide; the widths of the layers give
# 1.60M parameters.
model_of() {
    local balance="--doc-balance published --doc-lambda 0.001"
    local mixture="--arch lstm_doc_lm --decoder-embed-dim 100"
    case "$1" in
        softmax) echo "--arch lstm_awd_lm_ptb --decoder-embed-dim 100 --layer-dims 183,183,100" ;;
        mos) echo "$mixture --layer-dims 167,167,120 --doc-components 0,0,0,4 $balance" ;;
        doc2) echo "$mixture --layer-dims 166,166,120 --doc-components 0,0,1,3 $balance" ;;
        doc1) echo "$mixture --layer-dims 166,166,120 --doc-components 0,1,0,3 $balance" ;;
        *) echo "expected softmax, mos, doc2 or doc1; got $1" >&2; return 1 ;;
    esac
}
