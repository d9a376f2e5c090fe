"""What a node has, in plain values. Sent to the node as code, so that it answers whatever version of fscl is there, or none.

That is why nothing of fscl is imported up here.
"""

from typing import Any


def look(device: str, pools: list[tuple[str, str]]) -> dict[str, Any]:
    """The versions on this node, and the content hash of each pool, or why there is none.

    Args:
        device: that cells are computed on.
        pools: of each, the options of its data set as JSON, and the side of it.
    """
    try:
        import json

        from fscl.data.catalogue import load_splits, read_options
        from fscl.errors import FsclError
        from fscl.experiment.versions import versions
        from fscl.process import configure_process
    except Exception as error:  # no fscl, or one that has none of this
        return {"fault": f"it cannot import fscl ({type(error).__name__}: {error})"}
    configure_process()
    found: dict[str, Any] = {"versions": versions(device), "hashes": [], "missing": []}
    loaded: dict[str, Any] = {}
    for options, side in pools:
        try:
            if options not in loaded:
                loaded[options] = load_splits(read_options(json.loads(options)))
            found["hashes"].append(loaded[options].pool(side).content_hash)
            found["missing"].append("")
        except (FsclError, OSError, ValueError) as error:
            found["hashes"].append("")
            found["missing"].append(" ".join(str(error).split()))
    return found
