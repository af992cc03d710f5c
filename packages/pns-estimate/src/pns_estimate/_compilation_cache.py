"""Keeps compiled programs for the next run, in the user's cache folder."""

import hashlib
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

import jax
import platformdirs


def use_compilation_cache() -> Path | None:
    """Turns on JAX's persistent compilation cache; for programs, never on import.

    The folder is `JAX_COMPILATION_CACHE_DIR` where that is set. Otherwise it lies in the
    user's cache folder (`XDG_CACHE_HOME`, or the system's), one for each type of
    processor, because programs are compiled for it. It may be deleted at any time.
    `JAX_ENABLE_COMPILATION_CACHE=false` turns the cache off.

    Returns:
      The folder, or None if there is no cache because it is turned off or the folder
      cannot be written.

    Example:
      >>> import jax
      >>> before = jax.config.jax_compilation_cache_dir
      >>> jax.config.update("jax_compilation_cache_dir", "compiled")
      >>> print(use_compilation_cache())  # a folder that was chosen before is kept
      compiled
      >>> jax.config.update("jax_compilation_cache_dir", before)
    """
    settings: Any = jax.config  # its attributes are made when JAX is imported
    if not settings.jax_enable_compilation_cache:
        return None
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        # A fit compiles hundreds of small programs, which take most of the time.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    if settings.jax_compilation_cache_dir is not None:
        return Path(settings.jax_compilation_cache_dir)
    try:
        cache = platformdirs.user_cache_path("pns-estimate", opinion=False)
        folder = cache / "compiled" / _processor()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass  # it can be written
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    return folder


def _processor() -> str:
    """Names the kind of processor, for home folders that several machines share."""
    features = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        features = next(
            (line for line in lines if line.lower().startswith(("flags", "features"))),
            features,
        )
    digest = hashlib.sha256(features.encode()).hexdigest()[:8]
    return f"{platform.machine()}-{digest}"
