"""vLLM as the engine: in the sampler's own process, or as a server; weights through its own transfer interface."""
