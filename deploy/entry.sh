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
    exec python -m nm --host 0.0.0.0 --node-name "$(hostname)-" --advertise "$(hostname):8041" "$@"
fi
if [ "${1:-}" = demo ]; then
    shift
    samples=$(python -c 'import weft.client as c; print(c.__path__[0])')/samples/tpch
    exec weft submit --wait "$@" "$samples"/*.json
fi
exec "$@"
