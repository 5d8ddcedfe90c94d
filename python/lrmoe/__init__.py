"""LRMoE's Python side: what works on the files that the `lrmoe` program writes."""
