#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the lists of keys and options that tests/jobs/other_tools_test.cpp goes over.

    pip download --no-deps -d DIR accelerate==1.15.0 transformers==5.23.0 transformers==4.57.1 ms-swift==4.6.0
    DS_BUILD_OPS=0 pip download --no-deps --no-binary :all: --no-build-isolation -d DIR deepspeed==0.19.8
    (unpack each into a directory; deepspeed's build needs torch to be importable)
    make_key_lists.py ACCELERATE DEEPSPEED TRANSFORMERS TRANSFORMERS4 SWIFT

The arguments are the directories of the packages' sources. Nothing of them is imported: the sources are parsed. A line
is a key, with its blocks before it ("fsdp_config.fsdp_version"), a tab, and its default as JSON ("?": none is known).
"""
import ast
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def parse(path):
    with open(path, encoding="utf-8") as file:
        return ast.parse(file.read())


def constant(node, names=None):
    """The value of an expression as JSON text, "?" if it is not a constant."""
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        if called == "pp_int":
            return constant(node.args[0], names)
        if called in ("Field", "field"):
            for keyword in node.keywords:
                if keyword.arg == "default":
                    return constant(keyword.value, names)
            return constant(node.args[0], names) if node.args else "?"
        return "?"
    if names is not None and isinstance(node, ast.Name):
        return names.get(node.id, "?")
    try:
        value = ast.literal_eval(node)
        if isinstance(value, float) and value == int(value) and abs(value) >= 1e5:
            value = int(value)
        return json.dumps(value)
    except (ValueError, TypeError):
        return "?"


def constants(path):
    """NAME = literal of a source file, as JSON texts."""
    found = {}
    for node in parse(path).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = constant(node.value, found)
    return found


def classes(path):
    return {node.name: node for node in ast.walk(parse(path)) if isinstance(node, ast.ClassDef)}


def fields(path, name, names=None):
    """(field, default) of a dataclass or pydantic model, with the aliases of fields."""
    for node in classes(path)[name].body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        default = constant(node.value, names) if node.value is not None else "?"
        yield node.target.id, default
        if isinstance(node.value, ast.Call):
            for keyword in node.value.keywords:
                if keyword.arg == "alias":
                    yield ast.literal_eval(keyword.value), default


def prefixed(path, prefix, leave_out=()):
    """Keys of a block that are constants PREFIX_X = "x", with PREFIX_X_DEFAULT."""
    found = constants(path)
    for name, value in found.items():
        is_key = name.startswith(prefix + "_") and not name.endswith("_DEFAULT") and value.startswith('"')
        if is_key and name not in leave_out:
            yield json.loads(value), found.get(name + "_DEFAULT", "?")


def parameters(path, class_name, leave_out=()):
    """Parameters of a class's constructor."""
    names = constants(path)
    for node in classes(path)[class_name].body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            arguments = node.args.args[1:]
            defaults = [None] * (len(arguments) - len(node.args.defaults)) + node.args.defaults
            for argument, default in zip(arguments, defaults):
                if argument.arg not in leave_out:
                    yield argument.arg, "?" if default is None else constant(default, names)


def arguments(path):
    """--name of calls add_argument("--name", …), with their defaults."""
    for node in ast.walk(parse(path)):
        if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("add_argument"):
            continue
        default = next((constant(k.value) for k in node.keywords if k.arg == "default"), "?")
        for argument in node.args:
            if isinstance(argument, ast.Constant) and str(argument.value).startswith("--"):
                yield argument.value[2:].replace("-", "_"), default


def subscripts(path, variable):
    """Keys of assignments variable["key"] = … and variable[prefix + "key"] = … (prefix: the last one assigned)."""
    prefix = ""
    nodes = [node for node in ast.walk(parse(path)) if isinstance(node, ast.Assign)]
    for node in sorted(nodes, key=lambda node: node.lineno):
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id == "prefix":
            prefix = ast.literal_eval(node.value)
        if isinstance(target, ast.Subscript) and ast.unparse(target.value) == variable:
            if isinstance(target.slice, ast.Constant):
                yield target.slice.value, "?"
            elif isinstance(target.slice, ast.BinOp):
                yield prefix + target.slice.right.value, "?"


def accelerate_keys(root):
    config = os.path.join(root, "commands", "config", "config_args.py")
    cluster = os.path.join(root, "commands", "config", "cluster.py")
    launch = os.path.join(root, "commands", "launch.py")
    keys = {}

    def add(block, entries):
        for key, default in entries:
            path = block + key
            if keys.get(path, "?") == "?":
                keys[path] = default

    for name in ("BaseConfig", "ClusterConfig", "SageMakerConfig"):
        add("", fields(config, name))
    for block in ("fsdp_config", "deepspeed_config", "parallelism_config", "megatron_lm_config", "fp8_config",
                  "dynamo_config", "mpirun_config"):
        add(block + ".", subscripts(cluster, block))
    options = dict(arguments(launch))
    for prefix, block in (("fsdp_", "fsdp_config"), ("parallelism_config_", "parallelism_config"),
                          ("megatron_lm_", "megatron_lm_config"), ("dynamo_", "dynamo_config"),
                          ("mpirun_", "mpirun_config")):
        add(block + ".", ((key, value) for key, value in options.items() if key.startswith(prefix)))
    deepspeed = ("deepspeed_", "zero", "offload_", "gradient_")
    add("deepspeed_config.", ((key, value) for key, value in options.items() if key.startswith(deepspeed)))
    return keys


def deepspeed_keys(root):
    runtime = os.path.join(root, "runtime")
    keys = {}

    def add(block, entries):
        for key, default in entries:
            keys.setdefault(block + key, default)

    top = constants(os.path.join(runtime, "constants.py"))
    not_keys = ("ROUTE_", "PIPE_", "GRADIENT_ALLREDUCE_OP_", "TORCH_AUTOCAST_", "CHECKPOINT_", "GLOBAL_RANK", "TYPE",
                "LEGACY_FUSION", "CHECK_OVERFLOW", "DATA_PARALLEL_GROUP", "LOAD_UNIVERSAL", "USE_NODE_LOCAL",
                "GRAD_ACCUM_DTYPE", "PARAM_DTYPE", "BUFFER_DTYPE", "OPTIMIZER_PARAMS", "SCHEDULER_PARAMS", "ADAM",
                "MAX_GRAD_NORM", "FP16_", "BFLOAT16_", "KEEP_IN_FP32", "DDP_BFLOAT16", "TORCH_AUTOCAST_FORMAT",
                "DISTRIBUTED_")
    for name, value in top.items():
        if name.endswith("_DEFAULT") or not value.startswith('"') or name.startswith(not_keys):
            continue
        if re.fullmatch(r'"[a-z0-9_]+"', value):
            add("", [(json.loads(value), top.get(name + "_DEFAULT", "?"))])
    # Blocks whose names are read by other sources than constants.py.
    add("", ((key, "{}") for key in ("zero_optimization", "bf16", "bfloat16", "fp16", "activation_checkpointing",
                                     "aio", "flops_profiler", "comms_logger", "tensorboard", "wandb", "comet",
                                     "csv_monitor", "autotuning", "data_efficiency", "tensor_parallel",
                                     "expert_parallel", "hybrid_engine", "pipeline", "compile", "timers", "checkpoint",
                                     "data_types", "datastates_ckpt", "weight_quantization", "torch_autocast")))
    add("", [("wall_clock_breakdown", "false"), ("memory_breakdown", "false"), ("dump_state", "false"),
             ("gradient_clipping", "0.0"), ("vocabulary_size", "?")])
    tree = parse(os.path.join(runtime, "config.py"))
    for node in tree.body:  # keys that older versions had
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("_REMOVED_"):
            if isinstance(node.value, ast.Dict):
                block = "zero_optimization." if "ZERO" in ast.unparse(node.targets[0]) else ""
                add(block, ((ast.literal_eval(key), "?") for key in node.value.keys))
    for node in ast.walk(tree):  # the dictionary of defaults of "pipeline"
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "default_pipeline":
            add("pipeline.", ((ast.literal_eval(k), constant(v)) for k, v in zip(node.value.keys, node.value.values)))

    def path(*parts):
        return os.path.join(root, *parts)

    models = (("zero_optimization.", ("runtime", "zero", "config.py"), "DeepSpeedZeroConfig"),
              ("zero_optimization.offload_param.", ("runtime", "zero", "offload_config.py"),
               "DeepSpeedZeroOffloadParamConfig"),
              ("zero_optimization.offload_optimizer.", ("runtime", "zero", "offload_config.py"),
               "DeepSpeedZeroOffloadOptimizerConfig"),
              ("zero_optimization.leaf_module.", ("runtime", "zero", "leaf_module_config.py"),
               "DeepSpeedZeroLeafModuleConfig"),
              ("zero_optimization.zenflow.", ("runtime", "zenflow", "zenflow_config.py"), "ZenFlowConfig"),
              ("bf16.", ("runtime", "precision_config.py"), "DeepSpeedBF16Config"),
              ("fp16.", ("runtime", "precision_config.py"), "DeepSpeedFP16Config"),
              ("comms_logger.", ("comm", "config.py"), "CommsLoggerConfig"),
              ("tensorboard.", ("monitor", "config.py"), "TensorBoardConfig"),
              ("wandb.", ("monitor", "config.py"), "WandbConfig"),
              ("csv_monitor.", ("monitor", "config.py"), "CSVConfig"),
              ("comet.", ("monitor", "config.py"), "CometConfig"),
              ("compile.", ("compile", "config.py"), "CompileConfig"),
              ("timers.throughput.", ("utils", "config.py"), "DeepSpeedThroughputTimerConfig"),
              ("tensor_parallel.", ("runtime", "tensor_parallel", "config.py"), "TPTrainingConfig"),
              ("tensor_parallel.tp.", ("runtime", "tensor_parallel", "config.py"), "TPConfig"),
              ("hybrid_engine.", ("runtime", "config.py"), "HybridEngineConfig"))
    for block, parts, name in models:
        add(block, fields(path(*parts), name))
    blocks = (("activation_checkpointing.", ("runtime", "activation_checkpointing", "config.py"), "ACT_CHKPT", ()),
              ("aio.", ("runtime", "swap_tensor", "constants.py"), "AIO", ("AIO_FORMAT",)),
              ("flops_profiler.", ("profiling", "constants.py"), "FLOPS_PROFILER", ("FLOPS_PROFILER_FORMAT",)),
              ("torch_autocast.", ("runtime", "constants.py"), "TORCH_AUTOCAST",
               ("TORCH_AUTOCAST_FORMAT",)),
              ("data_efficiency.", ("runtime", "data_pipeline", "constants.py"), "DATA_EFFICIENCY", ()))
    for block, parts, prefix, leave_out in blocks:
        add(block, prefixed(path(*parts), prefix, leave_out))
    autotuning = constants(path("autotuning", "constants.py"))
    read = re.findall(r"get_scalar_param\(\s*\w+,\s*(AUTOTUNING_\w+)", open(path("autotuning", "config.py")).read())
    add("autotuning.", ((json.loads(autotuning[name]), autotuning.get(name + "_DEFAULT", "?")) for name in read
                        if autotuning.get(name, "?").startswith('"')))
    add("checkpoint.", ((key, "?") for key in ("tag_validation", "load_universal", "use_node_local_storage",
                                               "parallel_write", "checkpoint_serialization", "writer")))
    add("data_types.", ((key, "null") for key in ("grad_accum_dtype", "param_dtype", "buffer_dtype")))
    experts = open(path("module_inject", "auto_ep_config.py"), encoding="utf-8").read()
    for name, node in classes(path("module_inject", "auto_ep_config.py")).items():
        if name == "AutoEPConfig":
            add("expert_parallel.", fields(path("module_inject", "auto_ep_config.py"), name))
    if "expert_parallel.enabled" not in keys:
        known = re.findall(r"param_dict\.get\(\s*\"(\w+)\"", experts) + re.findall(r"\"(\w+)\" in param_dict", experts)
        add("expert_parallel.", ((key, "?") for key in known))
    add("", [("optimizer", "?"), ("scheduler", "?")])
    add("optimizer.", [("type", "?"), ("params", "{}"), ("legacy_fusion", "false")])
    for parts, name in ((("ops", "adam", "fused_adam.py"), "FusedAdam"), (("ops", "adam", "cpu_adam.py"),
                         "DeepSpeedCPUAdam"), (("ops", "lamb", "fused_lamb.py"), "FusedLamb"),
                        (("ops", "lion", "fused_lion.py"), "FusedLion")):
        add("optimizer.params.", parameters(path(*parts), name, ("model_params", "params")))
    add("optimizer.params.", ((key, "?") for key in ("torch_adam", "adam_w_mode", "momentum", "nesterov", "dampening",
                                                     "muon_lr", "adam_lr", "ns_method", "per_head_muon")))
    add("scheduler.", [("type", "?"), ("params", "{}")])
    for name in ("LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"):
        add("scheduler.params.", parameters(path("runtime", "lr_schedules.py"), name, ("optimizer",)))
    return keys


def dataclass_keys(files):
    keys = {}
    for path, name in files:
        for key, default in fields(path, name):
            if keys.get(key, "?") == "?":
                keys[key] = default
    return keys


def training_arguments(*roots):
    return dataclass_keys([(os.path.join(root, "training_args.py"), "TrainingArguments") for root in roots])


def swift_arguments(root):
    """Every field of the classes from which ms-swift makes the options of `swift sft`."""
    files = []
    folders = [os.path.join(root, folder) for folder in ("arguments", "trainers", "ray_utils")]
    for directory, names in sorted((found, names) for folder in folders for found, _, names in os.walk(folder)):
        for name in sorted(names):
            if name.endswith(".py"):
                path = os.path.join(directory, name)
                files += [(path, found) for found in classes(path) if found in SFT_CLASSES]
    return dataclass_keys(files)


SFT_CLASSES = ("SftArguments", "BaseArguments", "DataArguments", "ModelArguments", "TemplateArguments",
               "TunerArguments", "QuantizeArguments", "GenerationArguments", "RayArguments", "SwanlabArguments",
               "TrainArgumentsMixin")


def write(name, title, keys):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as file:
        file.write(f"# {title}, by make_key_lists.py: key, tab, default as JSON\n")
        for key in sorted(keys):
            file.write(f"{key}\t{keys[key]}\n")
    print(name, len(keys))


def main():
    accelerate, deepspeed, transformers, transformers4, swift = sys.argv[1:6]
    write("accelerate_keys.txt", "accelerate 1.15.0", accelerate_keys(accelerate))
    write("deepspeed_keys.txt", "DeepSpeed 0.19.8", deepspeed_keys(deepspeed))
    write("training_arguments.txt", "TrainingArguments of transformers 5.23.0 and 4.57.1",
          training_arguments(transformers, transformers4))
    write("ms_swift_arguments.txt", "swift sft of ms-swift 4.6.0", swift_arguments(swift))


if __name__ == "__main__":
    main()
