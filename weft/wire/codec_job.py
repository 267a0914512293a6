"""A job travels as the JSON of the job file: one format to check, and one that people can read."""

import json
from collections import OrderedDict

from weft.model.errors import InputError
from weft.model.job import Job
from weft.model.jobfile import job_from_dict, job_to_dict

JOB_BYTES_MAX = 32 * 1024 * 1024  # it must fit into an answer with what is known of its tasks
_GROWTH_MAX = 8  # how much longer our JSON of a job may be than a client's: 1e15 is 18 characters
_KEPT = 8  # encoded jobs kept, for attempts that are told the same job again
_encoded: OrderedDict[int, tuple[Job, bytes]] = OrderedDict()


def encode_job(job: Job) -> bytes:
    """Return UTF-8 JSON of one job."""
    found = _encoded.get(id(job))
    if found is not None and found[0] is job:
        return found[1]
    text = json.dumps(job_to_dict(job), separators=(",", ":"), ensure_ascii=False)
    data = text.encode("utf-8", "surrogatepass")
    _encoded[id(job)] = (job, data)
    if len(_encoded) > _KEPT:
        _encoded.popitem(last=False)
    return data


def decode_job(data: bytes) -> Job:
    """Read and check one job; raises InputError with the place of the first problem."""
    _check_size(len(data))
    try:
        table = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError("job", f"invalid UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise InputError("job", f"invalid JSON: {error}") from None
    except ValueError:  # Python reads no integer of thousands of digits
        raise InputError("job", "invalid JSON: a number has too many digits") from None
    except RecursionError:
        raise InputError("job", "nested too deeply") from None
    job = job_from_dict(table)
    if len(data) > JOB_BYTES_MAX // _GROWTH_MAX:  # as it will travel on from here
        _check_size(len(encode_job(job)))
    return job


def _check_size(size: int) -> None:
    if size > JOB_BYTES_MAX:
        said, limit = size / 1e6, JOB_BYTES_MAX / 1e6
        raise InputError("job", f"{said:.1f} MB are more than the {limit:.0f} MB of a job")
