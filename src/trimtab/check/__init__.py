"""The laws, run on code that is not ours: batches are drawn, a function is called twice, and two numbers have to agree."""
