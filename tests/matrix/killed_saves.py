#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Claim: a run that is killed while it saves leaves the last complete checkpoint, and goes on from it to the same weights.

A run of 40 steps saves at each step and is killed (SIGKILL, all ranks at once) after a random time, twelve times; each
time --resume_from_checkpoint auto continues it, on another number of ranks. At the end its weights are compared with those
of a run that nobody killed. The peer is transformers' Trainer with resume_from_checkpoint=True, killed while a file of a
checkpoint grows.
"""
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import common

LENGTH, KILLS = 32, 12


def main():
    options = common.arguments(__doc__).parse_args()
    place = common.Workplace(options)
    common.make_model(place.path / "model", hidden_size=256, intermediate_size=640, vocab_size=8192)
    common.make_tokens(place.path / "train.bin", LENGTH * 240)
    chosen, killed, whole_steps = random.Random(5), 0, []
    words = ["train", "--model", "model", "--dataset", "train.bin", "--max_length", LENGTH, "--global_batch_size", 8,
             "--max_steps", 40, "--save_steps", 1, "--save_total_limit", 3, "--learning_rate", 1e-3, "--seed", 1,
             "--reproducible", "true", "--add_version", "false"]
    for run in ("whole", "killed"):
        shutil.rmtree(place.path / run, ignore_errors=True)
    place.run(2, *words, "--output_dir", "whole")
    for attempt in range(KILLS):
        ranks = (1, 2, 4)[attempt % 3]
        command = [place.tessera, "launch", "-n", str(ranks), "--", *map(str, words), "--output_dir", "killed",
                   "--resume_from_checkpoint", "auto"]
        running = subprocess.Popen(command, cwd=place.path, env=common.mpi_environment(), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        begun = newest(place)
        while running.poll() is None and newest(place) <= begun:  # it has saved once more
            time.sleep(0.01)
        time.sleep(chosen.random() * 0.3)
        if running.poll() is None:
            killed += 1
            kill_all(place.path)
        running.wait()
        # What a reader would take: every checkpoint that is there by its name is whole.
        names = [entry.name for entry in (place.path / "killed").glob("checkpoint-*") if entry.name.split("-")[1].isdigit()]
        verified = place.run(1, "checkpoint", "verify", *[f"killed/{name}" for name in names], check=False)
        whole_steps.append(verified.returncode == 0 and bool(names))
    place.run(2, *words, "--output_dir", "killed", "--resume_from_checkpoint", "auto")
    same = common.digest(place.path / "whole/model.safetensors") == common.digest(place.path / "killed/model.safetensors")
    rows = [("Tessera", killed, f"{sum(whole_steps)} of {len(whole_steps)}",
             "the same bytes as a run that nobody killed" if same else "DIFFERENT")]
    if not options.no_peers:
        rows.append((common.versions("transformers", "torch"), 1, *trainer_killed(place)))
    common.table("Killed while saving", ("side", "kills", "kills after which every checkpoint was whole", "the run then"),
                 rows)
    sys.exit(0 if same and all(whole_steps) and killed else 1)


def newest(place):
    steps = [int(entry.name.split("-")[1]) for entry in (place.path / "killed").glob("checkpoint-*")
             if entry.name.split("-")[1].isdigit()]
    return max(steps, default=0)


def kill_all(folder):
    """SIGKILL to launch, mpirun and the ranks of runs in `folder`, whatever their session."""
    programs = {"tessera", "mpirun", "orterun", "prterun", "orted"}
    for process in os.listdir("/proc"):
        try:
            if (process.isdigit() and os.readlink(f"/proc/{process}/cwd") == str(folder) and
                    os.path.basename(os.readlink(f"/proc/{process}/exe")) in programs):
                os.kill(int(process), signal.SIGKILL)
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            pass


def trainer_killed(place):
    """transformers' Trainer, killed while optimizer.pt of its second checkpoint is written, and started again."""
    shutil.rmtree(place.path / "trainer", ignore_errors=True)
    command = [sys.executable, str(common.HERE / "peer_killed_saves.py"), str(place.path)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    second = place.path / "trainer" / "checkpoint-2"
    while running.poll() is None and not (second / "optimizer.pt").exists():
        time.sleep(0.0005)
    running.kill()
    running.wait()
    size = (second / "optimizer.pt").stat().st_size if (second / "optimizer.pt").exists() else 0
    again = subprocess.run([*command, "resume"], capture_output=True, text=True)
    if again.returncode == 0:
        return f"checkpoint-2 has {size} bytes of optimizer.pt", "goes on"
    return f"0 of 1: checkpoint-2 has {size} bytes of optimizer.pt", again.stderr.strip().splitlines()[-1][:140]


if __name__ == "__main__":
    main()
