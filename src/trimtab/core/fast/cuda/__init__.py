"""The pass for CUDA, by Triton: the same program of a rule, a few kernels, no number read on the host.

Written for CUDA, tested under Triton's interpreter on a CPU and compiled for two GPUs; not run on a GPU.
"""
