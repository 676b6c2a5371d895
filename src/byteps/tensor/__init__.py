"""What every part of a job knows of a tensor: its element type, its memory, how it is cut and where it lives.

dtypes     the element types that can be sent
arrays     NumPy arrays and the like as dtype, shape and address
partition  how large the partitions of a tensor are
tuning     numbers that tune speed, and where they come from
runs       where the partitions are, in few words
"""
