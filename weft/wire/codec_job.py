"""Jobs and queues travel as the JSON of their files: formats to check, and that people can read."""

import json
from collections import OrderedDict

from weft.model.errors import InputError
from weft.model.job import Job
from weft.model.jobfile import job_from_dict, job_to_dict
from weft.model.queues import QueueSpec, queues_from_dict, queues_to_dict

# A job must fit into an answer, together with what is known of its tasks.
JOB_BYTES_MAX = 16 * 1024 * 1024
QUEUES_BYTES_MAX = 8 * 1024 * 1024
# Objects and lists in JSON, each of which takes hundreds of bytes.
OBJECTS_MAX = 400_000
# Our JSON of a job may be so many times as long as a client's: 1e15 becomes 18 characters.
_JSON_GROWTH_MAX = 8
# Encoded jobs are kept for attempts that get the same job again: so many, of so many bytes but for
# the newest, as each keeps its job, which is a few times as large.
_ENCODED_JOBS_MAX, _ENCODED_BYTES_MAX = 8, 4 << 20
_encoded: OrderedDict[int, tuple[Job, bytes]] = OrderedDict()


def encode_job(job: Job) -> bytes:
    """Return UTF-8 JSON of one job."""
    found = _encoded.get(id(job))
    if found is not None and found[0] is job:
        return found[1]
    text = json.dumps(job_to_dict(job), separators=(",", ":"), ensure_ascii=False)
    data = text.encode("utf-8", "surrogatepass")
    _encoded[id(job)] = (job, data)
    size = sum(len(one) for _, one in _encoded.values())
    while len(_encoded) > _ENCODED_JOBS_MAX or (size > _ENCODED_BYTES_MAX and len(_encoded) > 1):
        size -= len(_encoded.popitem(last=False)[1][1])
    return data


def decode_job(data: bytes) -> Job:
    """Read and check one job; raises InputError with the place of the first problem."""
    job = job_from_dict(decode_json(data, "job", JOB_BYTES_MAX))
    if len(data) > JOB_BYTES_MAX // _JSON_GROWTH_MAX:
        # It will be sent on in Weft's own JSON.
        _check_size(len(encode_job(job)), "job", JOB_BYTES_MAX)
    return job


def encode_queues(queues: QueueSpec) -> bytes:
    """Return UTF-8 JSON of a tree of queues, as the section of a cluster file has it."""
    return json.dumps(queues_to_dict(queues), separators=(",", ":")).encode()


def decode_queues(data: bytes) -> QueueSpec:
    """Read and check a tree of queues; raises InputError with the place of the first problem."""
    return queues_from_dict(decode_json(data, "queues", QUEUES_BYTES_MAX))


def decode_json(data: bytes, what: str, bytes_max: int) -> object:
    """Return the data of UTF-8 JSON; raises InputError that names `what` where it is none."""
    _check_size(len(data), what, bytes_max)
    objects = data.count(b"{") + data.count(b"[")
    if objects > OBJECTS_MAX:
        raise InputError(what, f"{objects:,} objects and lists are more than {OBJECTS_MAX:,}")
    try:
        found: object = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(what, f"invalid UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise InputError(what, f"invalid JSON: {error}") from None
    except ValueError:
        # Python reads no integer of thousands of digits.
        raise InputError(what, "invalid JSON: a number has too many digits") from None
    except RecursionError:
        raise InputError(what, "nested too deeply") from None
    return found


def _check_size(size: int, what: str, bytes_max: int) -> None:
    if size > bytes_max:
        said, limit = size / 1e6, bytes_max / 1e6
        raise InputError(what, f"{said:.1f} MB are more than the {limit:.0f} MB of a {what}")
