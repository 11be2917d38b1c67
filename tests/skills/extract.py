"""The code pieces of the skills as files, and a workspace that holds all of their CUDA."""

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
SKILLS = sorted((ROOT / "skills").glob("*/SKILL.md"))
TEMPLATE = ROOT / "workspace_template"
VARIANTS = Path(__file__).parent / "variants"
BINDINGS = Path(__file__).parent / "bindings"  # of kernels whose binding a skill leaves to its reader
BLOCK = re.compile(r"^```(cpp|cuda|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"(?://|#) (?:kernels/)?(\S+\.(?:cpp|cu|cuh|h|py))\n")
SUFFIX = {"cpp": ".cpp", "cuda": ".cu", "python": ".py"}


def blocks(skill: Path, language: str) -> dict[str, str]:
    """Blocks of one language by file name: the one in their first line, or a number."""
    found = {}
    for number, (kind, text) in enumerate(BLOCK.findall(skill.read_text())):
        named = NAMED.match(text)
        if kind == language:
            found[named[1] if named else f"block_{number}{SUFFIX[language]}"] = text
    return found


def cuda_files() -> dict[str, str]:
    """Every `.cu`, its binding and the headers of both, of all skills together."""
    found: dict[str, str] = {}
    for skill in SKILLS:
        own = blocks(skill, "cuda") | {
            name: text
            for name, text in blocks(skill, "cpp").items()
            if name == "binding.h" or name.endswith("_binding.cpp")
        }
        twice = found.keys() & own.keys()
        assert not twice, f"{skill.parent.name} repeats {', '.join(sorted(twice))} of another skill"
        found |= own
    return found


def write_workspace(folder: Path, *, variants: bool) -> None:
    """A CUDA workspace with the kernels of all skills, and those that they argue against where `variants` is set."""
    shutil.copytree(TEMPLATE, folder, ignore=shutil.ignore_patterns(".cuda-tui", "__pycache__"))
    task = folder / "task.toml"
    task.write_text(task.read_text().replace('device = "cpu" ', 'device = "cuda"'))
    for name, text in cuda_files().items():
        (folder / "kernels" / name).write_text(text)
    for source in (BINDINGS, *([VARIANTS] if variants else [])):
        for path in source.iterdir():
            shutil.copy(path, folder / "kernels" / path.name)
