"""Which folder may look into which: the table for ``src/byteps`` and the one for ``native``.

A row names a folder and all the folders whose modules or headers it may import or include; its own are not
listed. ARCHITECTURE.md draws both tables. A new line here is a decision: it belongs into the same change as
the first look that needs it, and a line that nothing needs any more goes with the last one.
"""

from __future__ import annotations

Table = dict[str, set[str]]


def _table(text: str) -> Table:
    rows = (line.split(":") for line in text.strip().splitlines())
    return {folder.strip(): set(targets.split()) for folder, targets in rows}


# "byteps" is src/byteps/__init__.py, what users see; other modules beside it stand under their own names.
PYTHON = _table("""
    version:
    errors:
    _core:
    config:                 errors
    tensor:                 errors
    observe:                config errors _core
    control:                config errors observe version _core
    scheduler:              config control errors observe tensor version _core
    server:                 compress config control errors observe _core
    compress:               control errors tensor _core
    compress.reference:     compress
    worker:                 compress config control errors observe tensor _core
    plugin:                 compress errors observe tensor worker
    plugin.tensorflow:      errors plugin tensor worker
    byteps:                 compress errors plugin version worker
    torch:                  byteps compress control errors observe plugin tensor torch.device worker
    torch.device:           errors tensor worker
    torch.parallel:         errors torch worker
    torch.process_group:    config control errors torch worker
    torch_backend:          plugin torch.process_group
    jax:                    byteps compress errors plugin tensor worker
    mxnet:                  byteps compress errors plugin tensor worker
    keras:                  byteps compress errors jax plugin plugin.tensorflow tensor torch worker
    tensorflow:             byteps errors keras plugin.tensorflow worker
    tensorflow.distribute:  errors keras plugin.tensorflow worker
    tensorflow.keras:       keras
    launcher:               config control errors observe scheduler version
    ray:                    errors launcher worker
    testing:                launcher observe torch _core
    tools:                  config control errors observe scheduler version _core
    tools.lab:              errors launcher tools
    tools.bench:            compress errors tensor tools tools.lab torch _core
    tools.trace:            observe
    tools.doctor:           byteps config control errors launcher observe scheduler tools version worker _core
""")

# native/tests may look into everything; nobody may look into native/tests.
NATIVE = _table("""
    base:
    reduce:
    wire:                   base reduce
    observe:                base reduce
    bench:                  base reduce transport/sealed
    compress:               base reduce wire
    transport:              base wire
    transport/shm:          base wire
    transport/stream:       base transport wire
    transport/tcp:          base transport transport/stream
    transport/sealed:       base transport transport/stream
    transport/sim:          base transport transport/stream
    liveness:               base transport
    local:                  base observe reduce transport/shm wire
    aggregator/tensor:      compress reduce wire
    aggregator/update:      aggregator/tensor base compress reduce wire
    aggregator:             aggregator/tensor aggregator/update base observe transport transport/shm wire
    worker:                 base compress local observe reduce transport transport/shm wire
    sim:                    aggregator base compress reduce transport/sim wire worker
    python: aggregator base bench compress liveness local observe reduce transport/sealed transport/shm\
 transport/tcp wire worker
""")
