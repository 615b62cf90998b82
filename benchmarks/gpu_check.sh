#!/usr/bin/env bash
# Two steps of SFT, KTO and Dr. GRPO in bf16 at the shape of Qwen3-4B with random weights, through our own trainers:
# memory estimated and measured, tokens per second. At most eight minutes, nothing is downloaded.
#
#   benchmarks/gpu_check.sh                 on a machine with a CUDA GPU, from a checkout with `make install` done
#   benchmarks/gpu_check.sh --tiny --cpu    the same code at a tiny shape without a GPU (half a minute to two)
#   PYTHON=/path/to/python benchmarks/gpu_check.sh
#
# Exit codes: 0 all three stages ran, 1 one of them failed, 2 there is no CUDA device, 124 over eight minutes.
set -u
cd "$(dirname "$0")/.." || exit 1
PYTHON=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || command -v python3)}
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1 TRL_EXPERIMENTAL_SILENCE=1
export TOKENIZERS_PARALLELISM=false PYTHONUNBUFFERED=1 PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
if command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader || true
fi
timeout --kill-after=10 480 "$PYTHON" benchmarks/gpu_check.py "$@"
code=$?
[ "$code" -eq 124 ] && echo "gpu_check: stopped after eight minutes; what is printed above is all that was measured"
exit "$code"
