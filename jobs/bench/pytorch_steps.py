#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of Tessera's ZeRO-3 and of PyTorch's DDP and FSDP2 on CPUs, alternately, and the ratios of their times.

    python3 jobs/bench/pytorch_steps.py --python VENV/bin/python --tessera build/release/bin/tessera --shape gpt2

Each round runs every side once, one after the other: `tessera bench step` (bf16 and fp32), then DDP and FSDP2 in both
precisions, all with the same ranks, threads, shape, length and micro-batch. A ratio is PyTorch's time of a step over
Tessera's in the same round; its median over the rounds is printed, and the smallest and largest. CPU time is of all
threads of a rank; on a machine with other work its ratio says more than the wall time's. DDP in bf16 is autocast; FSDP2
computes in bf16 and reduces in fp32, as Tessera does. AdamW, and clipping to norm 1, are part of a step.
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve()
# family, layers, hidden, inner, heads, heads of K and V, head dim, vocabulary, head tied to the embedding
SHAPES = {"small": ("gpt2", 6, 384, 1536, 6, 6, 64, 256, True),
          "gpt2": ("gpt2", 12, 768, 3072, 12, 12, 64, 50257, True)}


def worker(args):
    """One rank of PyTorch's side; rank 0 prints the median time of a step."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.nn.parallel import DistributedDataParallel
    sys.path.insert(0, str(HERE.parent / "figures"))
    from fsdp2_step import Decoder

    torch.set_num_threads(args.threads)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    shape, bf16 = SHAPES[args.shape], args.precision == "bf16"
    model = Decoder(shape, args.length, recompute=False)
    if args.worker == "fsdp2":
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if bf16 else MixedPrecisionPolicy()
        for block in model.blocks:
            fully_shard(block, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
    else:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    data = torch.randint(shape[7], (args.micro, args.length + 1))
    seconds, cpu = [], []
    for _ in range(args.steps + 2):
        dist.barrier()
        start, used = time.perf_counter(), time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16 and args.worker == "ddp"):
            loss = model(data[:, :-1], data[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        dist.barrier()
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - used)
    if dist.get_rank() == 0:
        print(json.dumps({"torch": torch.__version__, "step_s": statistics.median(seconds[2:]),
                          "cpu_s": statistics.median(cpu[2:])}))
    dist.destroy_process_group()


def torch_step(args, side, precision):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [args.python, str(HERE), "--worker", side, "--precision", precision, "--shape", args.shape, "--length",
               str(args.length), "--micro", str(args.micro), "--steps", str(args.steps), "--threads", str(args.threads)]
    ranks = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={
        **os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank),
        "WORLD_SIZE": str(args.ranks), "OMP_NUM_THREADS": str(args.threads)}) for rank in range(args.ranks)]
    output = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit(f"error: {side} in {precision} failed: {' '.join(command)}")
    return json.loads(output[0])


def tessera_step(args):
    command = [*args.mpirun.split(), "-n", str(args.ranks), args.tessera, "bench", "step", "--shape", args.shape,
               "--max_length", str(args.length), "--per_device_train_batch_size", str(args.micro), "--bench_steps",
               str(args.steps), "--threads", str(args.threads), "--mixed_precision", "bf16", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"error: {' '.join(command)} failed")
    return json.loads(done.stdout[done.stdout.index("{"):])


def median_of_ratios(ours, theirs):
    ratios = [b / a for a, b in zip(ours, theirs)]
    return f"{statistics.median(ratios):8.2f}  ({min(ratios):.2f} to {max(ratios):.2f})"


def drive(args):
    own = {"bf16": "zero3", "fp32": "zero3 fp32"}
    wall, cpu, versions = {}, {}, set()

    def keep(side, precision, result):
        wall.setdefault((side, precision), []).append(result["step_s"])
        cpu.setdefault((side, precision), []).append(result["cpu_s"])

    for turn in range(args.rounds):
        report = tessera_step(args)
        for precision in args.precisions:
            keep("Tessera", precision, report[own[precision]])
            for side in ("ddp", "fsdp2"):
                result = torch_step(args, side, precision)
                versions.add(result["torch"])
                keep(side, precision, result)
        print(f"round {turn + 1}: " + ", ".join(
            f"{side} {precision} {times[-1]:.3f} s (CPU {cpu[side, precision][-1]:.3f})"
            for (side, precision), times in wall.items()), flush=True)
    tokens = args.ranks * args.micro * args.length
    print(f"{args.shape}, T {args.length}, micro-batch {args.micro}, {args.ranks} ranks of {args.threads} threads, "
          f"torch {', '.join(sorted(versions))}, medians of {args.rounds} rounds; "
          "ratios to Tessera (smallest to largest)")
    print(f"{'':14} {'tok/s':>8} {'CPU s/step':>10}  {'wall time':>8} {'':17} {'CPU time':>8}")
    for side, precision in wall:
        times, used = wall[side, precision], cpu[side, precision]
        ratios = "" if side == "Tessera" else (median_of_ratios(wall["Tessera", precision], times) + "  " +
                                               median_of_ratios(cpu["Tessera", precision], used))
        speed = tokens / statistics.median(times)
        print(f"{side + ' ' + precision:14} {speed:8.0f} {statistics.median(used):10.3f}  {ratios}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", help="the Python that has torch")
    parser.add_argument("--tessera", help="the program")
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--length", type=int, default=256, help="tokens of a sample")
    parser.add_argument("--micro", type=int, default=8, help="samples of a rank's micro-batch")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of a rank")
    parser.add_argument("--steps", type=int, default=6, help="that are measured, after two")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precisions", nargs="+", choices=("bf16", "fp32"), default=["bf16", "fp32"])
    parser.add_argument("--mpirun", default="mpirun", help="with options: 'mpirun --bind-to core'")
    parser.add_argument("--worker", choices=("ddp", "fsdp2"), help=argparse.SUPPRESS)
    parser.add_argument("--precision", choices=("bf16", "fp32"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return worker(args)
    if not args.python or not args.tessera:
        parser.error("--python and --tessera are needed")
    drive(args)


if __name__ == "__main__":
    main()
