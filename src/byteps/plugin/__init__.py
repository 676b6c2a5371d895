"""What the plugins of frameworks are built on; nothing here is an interface for users.

verbs       the operations of ``byteps`` on NumPy arrays
group       tensors that a plugin exchanges together
agreement   do all ranks exchange the same tensors
gather      every rank's bytes on all ranks
reductions  Average, Sum, Min and the like
horovod     what scripts ask Horovod about itself
tensorflow  tensors of TensorFlow, for ``byteps.tensorflow`` and for ``byteps.keras`` on that backend
torch_registry  how PyTorch is told of the backend ``byteps``
"""
