#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What people look at while a run trains and after it: TensorBoard's event files, report.html, the progress bar.
#   reports.sh TESSERA MPIRUN FAULT_INJECTION
set -eu
shim=$3
# shellcheck source=tests/system/first_failure.sh
. "$(dirname "$0")/first_failure.sh"

tiny_model 2 32
common=(train --model config.json --from_scratch --dataset train.txt --max_length 16 --global_batch_size 4 --per_device_train_batch_size 2
        --learning_rate 1e-2 --logging_steps 1 --add_version false --split_dataset_ratio 0.1 --eval_steps 2 --save_steps 2)

# One event file a start, in runs/, written by one rank; a run that is resumed appends a file that sorts after it.
"$mpirun" -n 2 "$tessera" "${common[@]}" --max_steps 4 --output_dir a --sample_prompt line --sample_tokens 4 > log 2>&1 || fail "the run ended with $?"
first=(a/runs/events.out.tfevents.*)
[ "${#first[@]}" = 1 ] || fail "${#first[@]} event files"
for tag in train/loss train/grad_norm train/learning_rate train/tokens_per_second 'train/memory(GiB)' grad_norm/h.1 grad_norm/head eval/loss args/text_summary \
  model_config/text_summary samples/0/text_summary; do
  grep -aqF "$tag" "${first[0]}" || fail "no $tag"
done
"$mpirun" -n 2 "$tessera" "${common[@]}" --max_steps 6 --output_dir a --resume_from_checkpoint auto > log 2>&1 || fail "the resumed run ended with $?"
both=(a/runs/events.out.tfevents.*)
[ "${#both[@]}" = 2 ] && [ "${both[0]}" = "${first[0]}" ] || fail "event files: ${both[*]}"

# A run that replaces another one's records replaces its event file, trace and report too.
for _ in 1 2; do
  "$tessera" "${common[@]}" --max_steps 2 --output_dir f --save_strategy no > log 2>&1 || fail "a run in the place of another: $?"
done
replaced=(f/runs/events.out.tfevents.*)
[ "${#replaced[@]}" = 1 ] || fail "event files: ${replaced[*]}"
[ -s f/trace/rank-00000.json ] && [ -s f/report.html ] || fail "no trace or report"
"$tessera" "${common[@]}" --max_steps 2 --output_dir f --save_strategy no --report_to none > log 2>&1 || fail "a run without a report: $?"
[ ! -e f/trace ] && [ ! -e f/report.html ] && [ ! -e "$(echo f/runs/*)" ] || fail "records of the run before: $(ls f f/runs)"

# The keys that only fp16 and --hash_params_every write are in docs/monitoring.md too (first_failure.sh compares).
"$tessera" "${common[@]}" --max_steps 2 --output_dir k --save_strategy no --mixed_precision fp16 --hash_params_every 1 > log 2>&1 || fail "fp16: $?"
grep -q '"loss_scale":' k/logging.jsonl && grep -q '"state_hash":' k/logging.jsonl || fail "no loss scale or hash in the records"

# A trace that is written elsewhere is in the report.
"$tessera" "${common[@]}" --max_steps 2 --output_dir g --profile_steps 2:2 --trace_dir traces > log 2>&1 || fail "--trace_dir: $?"
[ -s traces/rank-00000.json ] && [ ! -e g/trace ] && grep -q 'forward h.0 m0' g/report.html || fail "no trace of --trace_dir in the report"
rm g/report.html
(cd / && "$tessera" report "$work/g" > "$work/log" 2>&1) && grep -q 'forward h.0 m0' g/report.html || fail "the report from another directory"

# A full disk: the lines and events until there is room again are missing, one warning says so, and the run goes on.
calls() { sed -n 's/^\([0-9]*\) p\?write.*/\1/p' "$1".0 | sed -n "$2"p; }
for name in logging.jsonl tfevents; do
  for kind in ENOSPC short_full; do
    rm -rf h
    faults=(LD_PRELOAD="$shim" FAULT_DIR="$work/h" FAULT_WITH="$name")
    mkdir h
    env "${faults[@]}" FAULT_LOG="$work/counted" "$tessera" "${common[@]}" --max_steps 4 --output_dir h --save_strategy no > log 2>&1 || fail "counting: $?"
    whole=$(wc -l < h/logging.jsonl)
    rm -rf h/*
    env "${faults[@]}" FAULT_LOG="$work/happened" FAULT_KIND=$kind FAULT_AT="$(calls counted 3)" \
      "$tessera" "${common[@]}" --max_steps 4 --output_dir h --save_strategy no > log 2>&1 || fail "$kind of $name: $?"
    grep -q "^fault $kind" happened.0 || fail "$kind of $name did not happen"
    number=W053
    [ $name = logging.jsonl ] || number=W051
    [ "$(grep -c "^warning $number" log)" = 1 ] && [ "$(cat h/STATUS)" = completed ] && [ -s h/report.html ] || fail "$kind of $name"
    left=$(wc -l < h/logging.jsonl)
    case $name$kind in
      logging.jsonlENOSPC) [ "$left" = "$whole" ] && grep -q '"warning":"W053"' h/logging.jsonl ;;  # a line less, and the warning
      logging.jsonlshort_full) [ "$left" = 2 ] && [ "$(tail -c 1 h/logging.jsonl | od -An -c | tr -d ' ')" = '\n' ] ;;
      *) [ "$left" = $((whole + 1)) ] ;;
    esac || fail "$kind of $name: $left lines of $whole"
  done
done

# Not wanted; elsewhere; refused; and not writable, which does not end training.
"$tessera" "${common[@]}" --max_steps 2 --output_dir b --report_to none > log 2>&1 || fail "--report_to none: $?"
[ ! -e b/runs ] || fail "--report_to none wrote b/runs"
"$tessera" "${common[@]}" --max_steps 2 --output_dir c --logging_dir events > log 2>&1 || fail "--logging_dir: $?"
[ -s "$(echo events/events.out.tfevents.*)" ] && [ ! -e c/runs ] || fail "--logging_dir"
code=0
"$tessera" "${common[@]}" --output_dir d --report_to wandb > log 2>&1 || code=$?
[ "$code" = 2 ] && grep -q '^error: --report_to wandb: not built yet' log || fail "--report_to wandb: exit $code"
touch file
"$tessera" "${common[@]}" --max_steps 4 --output_dir e --logging_dir file/events > log 2>&1 || fail "an event file that cannot be made: $?"
[ "$(grep -c '^warning W051' log)" = 1 ] && [ "$(cat e/STATUS)" = completed ] || fail "W051"

# The report of each run: written at the end, without references, with the data of the run; and a comparison.
page=a/report.html
[ -s "$page" ] && [ -s a/trace/rank-00000.json ] && [ ! -e b/report.html ] || fail "reports"
for words in '"label":"a"' '"status":"completed"' '"grad_norm":\[\[1' '"validation":\[\[2' '"planned":{' 'forward h.0 m0' '"max_steps","6","command line"'; do
  grep -q -- "$words" "$page" || fail "no $words in the report"
done
grep -qE 'src=|href=|url\(|@import|https?://[^w]' "$page" && fail "the report refers to other files"
grep -q '"warning":"W051"' e/logging.jsonl && grep -q '"W051"' e/report.html || fail "the warning is not in the report"
rm "$page"
"$tessera" report a > log 2>&1 && [ -s "$page" ] || fail "tessera report a"
"$tessera" report a c --out both.html > log 2>&1 && grep -q '"label":"c"' both.html || fail "tessera report a c"
code=0
"$tessera" report file > log 2>&1 || code=$?
[ "$code" = 3 ] && grep -q 'no logging.jsonl' log || fail "report of no run: exit $code"

# A bar on a terminal; lines on a pipe, and under a launcher even on a terminal.
if command -v script > /dev/null; then
  erase=$(printf '\r\033[K')
  script -qec "'$tessera' ${common[*]} --max_steps 6 --output_dir t --report_to none" typescript > /dev/null < /dev/null || fail "on a terminal: $?"
  grep -qF "${erase}train     [" typescript && grep -q '^.*step 6/6' typescript || fail "no bar on a terminal: $(cat -v typescript)"
  script -qec "'$mpirun' -n 2 '$tessera' ${common[*]} --max_steps 6 --output_dir t2 --report_to none" typescript > /dev/null < /dev/null || fail "mpirun on a terminal"
  ! grep -qF "$erase" typescript || fail "a bar under mpirun"
fi
"$tessera" "${common[@]}" --max_steps 6 --output_dir p --report_to none > log 2>&1 || fail "on a pipe: $?"
! grep -q "$(printf '\033')" log || fail "control sequences on a pipe"
echo good
