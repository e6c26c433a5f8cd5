# SPDX-License-Identifier: Apache-2.0
"""Prints the records that event_test.cpp expects, as the tensorboard package writes them (pip install tensorboard)."""
import io

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.summary.writer.record_writer import RecordWriter

text = Summary.Value(
    tag="a/text_summary",
    metadata=SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text")),
    tensor=TensorProto(dtype="DT_STRING", string_val=["hé".encode()],
                       tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])))
events = {
    "GOLDEN_VERSION": Event(wall_time=1.5, file_version="brain.Event:2"),
    "GOLDEN_SCALAR": Event(wall_time=2.5, step=300,
                           summary=Summary(value=[Summary.Value(tag="train/loss", simple_value=0.75)])),
    "GOLDEN_TEXT": Event(wall_time=3, step=1, summary=Summary(value=[text])),
    "GOLDEN_SESSION": Event(wall_time=4, step=7, session_log=SessionLog(status=SessionLog.START)),
}
for name, event in events.items():
    file = io.BytesIO()
    RecordWriter(file).write(event.SerializeToString(deterministic=True))
    print(name, file.getvalue().hex())
