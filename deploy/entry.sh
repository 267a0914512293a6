#!/bin/sh
# Start a process of the image: the root may be read-only, so the kernels that the image holds are
# copied to where numba may write; then the process becomes PID 1 and gets the signals itself.
set -eu
if [ ! -d "$NUMBA_CACHE_DIR" ]; then
    cp -r /opt/weft-kernels "$NUMBA_CACHE_DIR" 2>/dev/null || true
fi
if [ "${1:-}" = node-manager ]; then
    shift
    # A container is reached by its host name, also after it got another address.
    exec python -m nm --host 0.0.0.0 --insecure --node-name "$(hostname)-" --advertise "$(hostname):8041" "$@"
fi
if [ "${1:-}" = demo ]; then
    shift
    for _ in $(seq 30); do
        if weft nodes --json | grep -q RUNNING; then break; fi
        sleep 1
    done
    if ! weft nodes --json | grep -q RUNNING; then
        echo "error: no node runs; start the cluster first: docker compose up -d" >&2
        exit 1
    fi
    samples=$(python -c 'import weft.client as c; print(c.__path__[0])')/samples/tpch
    exec weft submit --wait "$@" "$samples"/*.json
fi
exec "$@"
