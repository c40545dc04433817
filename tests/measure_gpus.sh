#!/usr/bin/env bash
# Most of what the README says of GPUs, measured again on one host with four of them, in about half an hour:
#
#     PYTHON=python tests/measure_gpus.sh WORK [--dry]
#
# WORK: a folder in memory, since clips and features take 10 GB. Jobs of a card run one after another, cards side by side;
# what is timed comes last, when all are quiet. Each job leaves WORK/logs/NAME.log, which begins with its command and ends
# with its exit status and seconds. The same command again passes over what ended with 0, and goes on with what is
# trained; the status is 1, and their logs are named, while any job has not ended so. --dry: print the jobs alone.
set -u
trap 'trap "" TERM; kill 0; exit 130' INT TERM # jobs in the background hear of no Ctrl-C
work=${1:?give a work folder}
dry=${2:-}
cd "$(dirname "$0")/.." || exit
python=${PYTHON:-python}
core="$python -m animegamer_core"
logs=$work/logs
export OMP_NUM_THREADS=6 TORCHINDUCTOR_CACHE_DIR=$work/inductor PYTHONUNBUFFERED=1 PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}

ended() { # NAME [STATUS]: whether a job has ended, with that status where one is given
  tail -n 1 "$logs/$1.log" 2>/dev/null | grep -q "^exit ${2:-}"
}

job() { # NAME CARDS COMMAND...
  local name=$1 cards=$2
  shift 2
  if [ -n "$dry" ]; then
    echo "$name [$cards] $*"
    return
  fi
  mkdir -p "$logs"
  ended "$name" 0 && return
  local begun=$SECONDS
  { echo "$*" && CUDA_VISIBLE_DEVICES=$cards "$@"; } >"$logs/$name.log" 2>&1
  local status=$?
  echo "exit $status after $((SECONDS - begun)) s, at $SECONDS s" >>"$logs/$name.log"
  return $status
}

ablations() { # NAME CARD VARIANTS...
  local name=$1 card=$2
  shift 2
  # shellcheck disable=SC2086
  job "$name" "$card" $core evaluate ablations --work "$work/ablations" --variants "$@" --compile --workers 6 --device cuda
}

# shellcheck disable=SC2086
drawn() { # the clips that ablations and the distillation share; every later job finds them there
  job draw "" $python -c "
import os
from pathlib import Path
from animegamer_core.evaluate.ablations.budgets import BUDGETS
from animegamer_core.toybox.dataset import write_dataset
write_dataset(Path('$work/ablations/dataset'), BUDGETS['short'].casting, max(1, os.cpu_count() - 4))"
}

# shellcheck disable=SC2086
distilled() { # a decoder that says in one pass what constant guidance makes of two, and how near it comes
  job distill 0 $core train distill --recipe lora --dataset "$work/ablations/dataset" --world toybox \
    --teacher-guidance constant --steps 1500 --batch 64 --accumulation 1 --per-card 0 --lora-rank 32 --lora-alpha 32 \
    --lr 1e-3 --lr-warmup 50 --no-checkpointing --drop-text 0 --drop-text-features 0 --drop-image 0 --precision no \
    --out "$work/distill" --resume &&
    job distilled 0 $python tests/measure_distilled.py "$work/distill/distill.safetensors" --out "$work/distilled.jsonl"
}

# shellcheck disable=SC2086
beside() { # what needs a card and no quiet machine: does it run, how far does it drift, a ratio within one run
  job ways 0 $python -m pytest -q -m gpu -s tests/test_tuning.py tests/test_presets.py
  job int8 0 $core bench --spec release --profile reference --repeats 2 --each int8 --json "$work/int8.json"
  job no_gelu 0 $core bench --spec release --repeats 2 --preset exact --with fused layout flash3 blocks vae \
    --json "$work/no_gelu.json"
}

# shellcheck disable=SC2086
single() { # what one card tells when nothing else runs
  for name in low_vram low_vram_12 low_vram_16; do
    job $name 0 $core bench --spec release --repeats 2 --preset $name --json "$work/$name.json"
  done
  job presets 0 $core bench --spec release --repeats 2 --preset exact balanced live --json "$work/presets.json"
}

release() { # NAME CARDS LAUNCHER...: steps of training at the published sizes; of a row's lines the last one counts
  local name=$1 cards=$2
  shift 2
  job "$name" "$cards" "$@" tests/measure_release.py --steps 6 --out "$work/release.jsonl" \
    --rows lora:joint:2 lora:adapt:2 lora:predict:2 lora24:joint:1 lora24:predict:1
}

side_by_side() {
  {
    beside
    until [ -n "$dry" ] || ended draw; do sleep 1; done
    { [ -n "$dry" ] || ended draw 0; } && distilled
  } &
  {
    drawn || exit
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
  side_by_side | cat
else
  side_by_side
fi
# shellcheck disable=SC2086
job table 0 $core evaluate ablations --work "$work/ablations" --score-only --device cuda
launch="$python -m accelerate.commands.launch --num_processes 4 --num_machines 1 --mixed_precision no --dynamo_backend no"
# shellcheck disable=SC2086
{
  release one 0 $python
  release ddp 0,1,2,3 $launch --multi_gpu
  release fsdp2 0,1,2,3 $launch --use_fsdp --fsdp_version 2
  job two_gpus 0,1 $python tests/measure_two_gpus.py --with fused flash3 gelu blocks --out "$work/two_gpus.jsonl"
}
single
[ -n "$dry" ] || ! grep -L '^exit 0 ' "$logs"/*.log | grep .
