"""Reference and candidate in one process, without isolation: quick enough to judge many pairs."""

from pathlib import Path
from typing import Any

from cuda_tui.evaluation.worker import candidate, oracle

FIELDS = {"class_name": "Model", "inputs": "get_inputs", "init": "get_init_inputs", "mode": "eval", "error_cap": 0.01}


class Bench:
    """An oracle on a model's source, and candidates against it."""

    def __init__(self, folder: Path, source: str, **fields: Any) -> None:
        self.folder = folder
        self.drawn = 0
        (folder / "model.py").write_text(source)
        self.oracle = oracle.Service({})
        self.loaded = self.oracle.load(str(folder / "model.py"), FIELDS | fields, [], str(folder))
        self.facts = self.oracle.examine()
        self.init = self.oracle.construct_arguments(str(folder))

    def candidate(self, source: str) -> candidate.Service:
        """A loaded candidate."""
        (self.folder / "model_new.py").write_text(source)
        request = {"folder": str(self.folder), "library": None, "path": str(self.folder / "model_new.py")}
        request |= {"precision": self.loaded["precision"]}
        service = candidate.Service({})
        service.load(request | {"roots": [], "seed": 3, "init": self.init, "inbox": str(self.folder), "mode": "eval"})
        return service

    def draw(self, *, state_seed: int | None = None, special: bool = False) -> tuple[str, dict[str, Any]]:
        """A fresh draw: its name, and what was written of it."""
        self.drawn += 1
        name = f"draw-{self.drawn}"
        written = self.oracle.draw(name, 1000 + self.drawn, str(self.folder), state_seed, special)
        if not special:
            self.oracle.warm_pool(name)
        return name, written

    def judge(self, source: str, *, draws: int = 4) -> "tuple[str | None, str]":
        """Code and reason of the first failure over the draws a verification makes; None where all pass."""
        service = self.candidate(source)
        plans: list[dict[str, Any]] = [{"state_seed": 5}, *[{}] * (draws - 1), {"special": True}]
        for name, written in [self.draw(**plan) for plan in plans]:
            if "refused" in written:
                continue
            service.set_state(str(self.folder / written["state_file"]), written["state"])
            out = str(self.folder / f"{name}.out")
            answer = service.run(str(self.folder / written["file"]), written["rows"], written["plan"], out)
            found = self.oracle.compare(name, out, answer)
            if found["code"]:
                return found["code"], found["reason"]
        failed = [row for row in self.oracle.check_stacks()["rows"] if not row["passed"]]
        return ("NUM_MISMATCH", failed[0]["reason"]) if failed else (None, "")
