#!/usr/bin/env bash
# Measures most of what the README says about GPUs, on one host with four of them, in about half an hour:
#
#     PYTHON=python tests/measure/gpus.sh WORK [--dry]
#
# WORK: a folder in memory, since clips and features take 10 GB. Each GPU runs its jobs one after another, and the GPUs run
# in parallel; timed jobs come last, when no other job runs. Each job writes WORK/logs/NAME.log, which begins with its
# command and ends with its exit status and seconds. The same command again skips the jobs that ended with 0 and resumes
# training; its status is 1, and it prints the logs, while any job failed. --dry: only print the jobs.
set -u
trap 'trap "" TERM; kill 0; exit 130' INT TERM # background jobs get no Ctrl-C
work=${1:?give a work folder}
dry=${2:-}
cd "$(dirname "$0")/../.." || exit
python=${PYTHON:-python}
core="$python -m animegamer_core"
logs=$work/logs
export OMP_NUM_THREADS=6 TORCHINDUCTOR_CACHE_DIR=$work/inductor PYTHONUNBUFFERED=1 PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}

job() { # NAME GPUS COMMAND...
  local name=$1 gpus=$2
  shift 2
  if [ -n "$dry" ]; then
    echo "$name [$gpus] $*"
    return
  fi
  mkdir -p "$logs"
  tail -n 1 "$logs/$name.log" 2>/dev/null | grep -q "^exit 0" && return
  local begun=$SECONDS
  { echo "$*" && CUDA_VISIBLE_DEVICES=$gpus "$@"; } >"$logs/$name.log" 2>&1
  local status=$?
  echo "exit $status after $((SECONDS - begun)) s, at $SECONDS s" >>"$logs/$name.log"
  return $status
}

ablations() { # NAME GPU VARIANTS...
  local name=$1 gpu=$2
  shift 2
  # shellcheck disable=SC2086
  job "$name" "$gpu" $core evaluate ablations --work "$work/ablations" --variants "$@" --workers 6 --device cuda
}

# shellcheck disable=SC2086
untimed() { # jobs that may run beside others: correctness, drift, ratios within one run
  job optimizations 0 $python -m pytest -q -m gpu -s tests/runtime/test_optimizations.py tests/runtime/test_presets.py
  job no_gelu 0 $core bench --spec release --repeats 2 --preset exact --with fused layout flash3 blocks vae \
    --json "$work/no_gelu.json"
}

# shellcheck disable=SC2086
single() { # timings of one GPU when nothing else runs
  for name in low_vram low_vram_12 low_vram_16; do
    job $name 0 $core bench --spec release --repeats 2 --preset $name --json "$work/$name.json"
  done
  job presets 0 $core bench --spec release --repeats 2 --preset exact balanced live --json "$work/presets.json"
}

release() { # NAME GPUS LAUNCHER...: training steps at the published sizes; a row's last line counts
  local name=$1 gpus=$2
  shift 2
  job "$name" "$gpus" "$@" tests/measure/release.py --steps 6 --out "$work/release.jsonl" \
    --rows lora:joint:2 lora:adapt:2 lora:predict:2 lora24:joint:1 lora24:predict:1
}

in_parallel() {
  untimed &
  {
    ablations full 1 full no_adaptation window_2 window_8 &
    ablations cosine 2 cosine_loss window_1 window_0 &
    ablations frames 2 random_frame no_motion_scope &
    ablations mixed 3 addition no_warm_up &
    ablations plain 3 cross_attention less_parameters &
    wait
  } &
  wait
}

if [ -n "$dry" ]; then
  in_parallel | cat
else
  in_parallel
fi
# shellcheck disable=SC2086
job table 0 $core evaluate ablations --work "$work/ablations" --score-only --device cuda
launch="$python -m accelerate.commands.launch --num_processes 4 --num_machines 1 --mixed_precision no --dynamo_backend no"
# shellcheck disable=SC2086
{
  release one 0 $python
  release ddp 0,1,2,3 $launch --multi_gpu
  release fsdp2 0,1,2,3 $launch --use_fsdp --fsdp_version 2
  job two_gpus 0,1 $python tests/measure/two_gpus.py --with fused flash3 gelu blocks --out "$work/two_gpus.jsonl"
}
single
[ -n "$dry" ] || ! grep -L '^exit 0 ' "$logs"/*.log | grep .
