"""Follows a model's forward by torch.export, and gives the graph of its calls."""
