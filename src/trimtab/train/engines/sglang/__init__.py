"""SGLang as servers: an environment of their own, HTTP, weights as folders."""
