"""Models of the Hugging Face hub as megatron-core builds them, and their weights both ways."""
