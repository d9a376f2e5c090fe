"""A model as a folder: journal, manifest, sheets of examples, states, lock; `folder.py` says how they go together."""
