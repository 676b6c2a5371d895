"""Tensors of TensorFlow, exchanged: for ``byteps.tensorflow``, and for ``byteps.keras`` on that backend.

``byteps.tensorflow`` hands optimizers of Keras to ``byteps.keras``, which needs the exchange in its turn. So
the exchange belongs to neither of them.

Pure Python over addresses: nothing here is compiled against TensorFlow.
"""

from __future__ import annotations

from byteps.plugin.tensorflow.needs import check

check()  # before a module of this folder fails with less to say
