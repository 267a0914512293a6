"""A job travels as the JSON of the job file: one format to check, and one that people can read."""

import json
from collections import OrderedDict

from weft.model.errors import InputError
from weft.model.job import Job
from weft.model.jobfile import job_from_dict, job_to_dict

# A job must fit into an answer, together with what is known of its tasks.
JOB_BYTES_MAX = 32 * 1024 * 1024
# Our JSON of a job may be so many times as long as a client's: 1e15 becomes 18 characters.
_JSON_GROWTH_MAX = 8
# Encoded jobs are kept for attempts that get the same job again.
_ENCODED_JOBS_MAX = 8
_encoded: OrderedDict[int, tuple[Job, bytes]] = OrderedDict()


def encode_job(job: Job) -> bytes:
    """Return UTF-8 JSON of one job."""
    found = _encoded.get(id(job))
    if found is not None and found[0] is job:
        return found[1]
    text = json.dumps(job_to_dict(job), separators=(",", ":"), ensure_ascii=False)
    data = text.encode("utf-8", "surrogatepass")
    _encoded[id(job)] = (job, data)
    if len(_encoded) > _ENCODED_JOBS_MAX:
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
    except ValueError:
        # Python reads no integer of thousands of digits.
        raise InputError("job", "invalid JSON: a number has too many digits") from None
    except RecursionError:
        raise InputError("job", "nested too deeply") from None
    job = job_from_dict(table)
    if len(data) > JOB_BYTES_MAX // _JSON_GROWTH_MAX:
        # It will be sent on in Weft's own JSON.
        _check_size(len(encode_job(job)))
    return job


def _check_size(size: int) -> None:
    if size > JOB_BYTES_MAX:
        said, limit = size / 1e6, JOB_BYTES_MAX / 1e6
        raise InputError("job", f"{said:.1f} MB are more than the {limit:.0f} MB of a job")
