#!/usr/bin/env bash
# Runs every test that needs a GPU and prints its figures. On a machine with a CUDA device, torch with CUDA, and nvcc:
#   scripts/gpu_check.sh [PYTHON]
# Columns of the table: example, eager µs, candidate µs, ratio (events over 50 calls, not certified), error of eager,
# error of the candidate, both against fp64.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3}
nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw,temperature.gpu --format=csv,noheader
"$python" -c 'import torch; print("torch", torch.__version__, "CUDA", torch.version.cuda)'
nvcc --version | tail -1
"$python" -m pytest -q -p no:cacheprovider -m gpu tests/autopilot "${@:2}"
