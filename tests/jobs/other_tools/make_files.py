#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes files/accelerate_*: configurations as accelerate 1.15.0 itself writes them, with the keys that the questions of
`accelerate config` ask for. The files/deepspeed_* are DeepSpeed's and ms-swift's documented examples, with other numbers.
"""
import os

from accelerate.commands.config.config_args import ClusterConfig
from accelerate.utils import ComputeEnvironment, DistributedType

FILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "files")


def write(name, **values):
    values.setdefault("compute_environment", ComputeEnvironment.LOCAL_MACHINE)
    values.setdefault("distributed_type", DistributedType.FSDP)
    values.setdefault("mixed_precision", "bf16")
    config = ClusterConfig(use_cpu=False, debug=False, num_processes=8, same_network=True, downcast_bf16="no", tpu_env=[],
                           **values)
    path = os.path.join(FILES, name)
    if name.endswith(".json"):
        config.to_json_file(path)
    else:
        config.to_yaml_file(path)


write("accelerate_fsdp1.yaml", fsdp_config={
    "fsdp_version": 1, "fsdp_reshard_after_forward": "FULL_SHARD", "fsdp_offload_params": False,
    "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_transformer_layer_cls_to_wrap": "Qwen2DecoderLayer",
    "fsdp_backward_prefetch": "BACKWARD_PRE", "fsdp_state_dict_type": "FULL_STATE_DICT", "fsdp_forward_prefetch": False,
    "fsdp_use_orig_params": True, "fsdp_cpu_ram_efficient_loading": True, "fsdp_sync_module_states": True,
    "fsdp_activation_checkpointing": False})
write("accelerate_fsdp2.yaml", num_machines=2, machine_rank=1, main_process_ip="10.0.0.1", main_process_port=29500,
      dynamo_config={"dynamo_backend": "INDUCTOR"}, fsdp_config={
          "fsdp_version": 2, "fsdp_reshard_after_forward": False, "fsdp_offload_params": False,
          "fsdp_auto_wrap_policy": "SIZE_BASED_WRAP", "fsdp_min_num_params": 100000000,
          "fsdp_state_dict_type": "SHARDED_STATE_DICT", "fsdp_cpu_ram_efficient_loading": True,
          "fsdp_activation_checkpointing": True})
write("accelerate_parallelism.yaml", fsdp_config={
    "fsdp_version": 2, "fsdp_reshard_after_forward": True, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "fsdp_state_dict_type": "FULL_STATE_DICT", "fsdp_cpu_ram_efficient_loading": False},
      parallelism_config={"parallelism_config_dp_replicate_size": 2, "parallelism_config_dp_shard_size": 4,
                          "parallelism_config_tp_size": 1, "parallelism_config_cp_size": 1})
write("accelerate_deepspeed.yaml", distributed_type=DistributedType.DEEPSPEED, deepspeed_config={
    "zero_stage": 3, "offload_optimizer_device": "none", "offload_param_device": "none",
    "gradient_accumulation_steps": 4, "gradient_clipping": 0.5, "zero3_save_16bit_model": True, "zero3_init_flag": True,
    "deepspeed_multinode_launcher": "standard"})
write("accelerate_default.json", distributed_type=DistributedType.MULTI_GPU)
