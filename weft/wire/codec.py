"""Messages to and from protobuf: what the services and channels use, one pair per stream or call.

Every message of `weft.protocol.messages` and every request and answer of `weft.protocol.requests`
has its way here; decoding what was encoded gives the same message (tests/wire holds it for all of
them).
"""

from weft.wire.codec_client import CALLS, Call
from weft.wire.codec_containers import (
    MasterEnded,
    TokensOf,
    decode_answers,
    decode_ends,
    decode_launches,
    decode_queries,
    decode_starts,
    decode_stops,
    encode_answers,
    encode_containers,
    encode_ends,
    encode_launches,
    encode_starts,
    no_tokens,
)
from weft.wire.codec_job import decode_job, encode_job
from weft.wire.codec_master import decode_orders as decode_master_orders
from weft.wire.codec_master import decode_reports as decode_master_reports
from weft.wire.codec_master import encode_orders as encode_master_orders
from weft.wire.codec_master import encode_reports as encode_master_reports
from weft.wire.codec_tracker import decode_orders as decode_node_orders
from weft.wire.codec_tracker import decode_reports as decode_node_reports
from weft.wire.codec_tracker import encode_orders as encode_node_orders
from weft.wire.codec_tracker import encode_reports as encode_node_reports
from weft.wire.schema import CodecError

__all__ = [
    "CALLS",
    "Call",
    "CodecError",
    "MasterEnded",
    "TokensOf",
    "decode_answers",
    "decode_ends",
    "decode_job",
    "decode_launches",
    "decode_master_orders",
    "decode_master_reports",
    "decode_node_orders",
    "decode_node_reports",
    "decode_queries",
    "decode_starts",
    "decode_stops",
    "encode_answers",
    "encode_containers",
    "encode_ends",
    "encode_job",
    "encode_launches",
    "encode_master_orders",
    "encode_master_reports",
    "encode_node_orders",
    "encode_node_reports",
    "encode_starts",
    "no_tokens",
]
