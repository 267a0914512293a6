"""Say by the exit code whether a service serves: `probe.py grpc HOST:PORT` or `probe.py http URL`.

For the health checks of containers: the probe lives in the image, so it needs no curl.
"""

import sys
import urllib.request

TIMEOUT_S = 3.0


def grpc_serves(address: str) -> bool:
    """Ask the standard health service."""
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    from weft.wire import tls

    options = [("grpc.enable_http_proxy", 0)]
    identity = tls.from_environment()  # as the service's own: WEFT_TLS_CA and its fellows
    if identity is None:
        connection = grpc.insecure_channel(address, options)
    else:
        credentials = grpc.ssl_channel_credentials(identity.ca, identity.key, identity.cert)
        connection = grpc.secure_channel(address, credentials, options)
    with connection as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            print(error, file=sys.stderr)
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def http_serves(url: str) -> bool:
    """Any page will do."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except OSError as error:
        print(error, file=sys.stderr)
        return False


def main(arguments: list[str]) -> int:
    """Exit code 0: it serves."""
    if len(arguments) != 2 or arguments[0] not in ("grpc", "http"):
        print("usage: probe.py grpc HOST:PORT | http URL", file=sys.stderr)
        return 2
    kind, place = arguments
    return 0 if (grpc_serves(place) if kind == "grpc" else http_serves(place)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
