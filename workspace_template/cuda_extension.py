"""Builds the sources in kernels/ when they changed, and offers their operators.

    import cuda_extension
    y = cuda_extension.my_op(x)          # a registered operator, or a function of a pybind module

Works on its own: it needs this folder, torch, ninja and a C++ compiler (nvcc for `.cu`). On the command line:

    python cuda_extension.py build       # what the import does, without loading
    python cuda_extension.py plan --json # what would be compiled, and how; runs nothing

Objects are named by a hash of everything that went into them (source, the headers it includes, flags, compiler, torch,
processor), so nothing is compiled twice and going back to an earlier version costs nothing. A library is named by the
hash of its objects: two different builds never share a name, and a failed build leaves the last good one in place.
The plan itself is made in cuda_extension_plan.py. Both files are protected: they are the workspace's contract.
"""

import argparse
import fcntl
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from cuda_extension_plan import BUILD, MODULE, ROOT, BuildError, make_plan

# ---- the build

REGISTRATION = """// Generated: runs the registrations of this build's operators in a namespace of their own.
#include <exception>
namespace cuda_tui {{
struct Registration {{ void (*run)(const char*); bool defines; Registration* next; }};
extern "C" {{ __attribute__((visibility("hidden"))) Registration* cuda_tui_registrations = nullptr; }}
}}
// Returns 0, or 1 with the reason in `message`: an exception must not cross a loader that is written in C.
extern "C" __attribute__((visibility("default"))) int cuda_tui_register(char* message, int size) {{
  try {{
    for (int schemas = 1; schemas >= 0; --schemas)
      for (auto* item = cuda_tui::cuda_tui_registrations; item; item = item->next)
        if (item->defines == (schemas == 1)) item->run("{namespace}");
    return 0;
  }} catch (const std::exception& error) {{
    const char* reason = error.what();
    int i = 0;
    for (; i + 1 < size && reason[i]; ++i) message[i] = reason[i];
    message[i] = 0;
  }}
  return 1;
}}
"""


def write_plan(plan):
    """Writes build.ninja, the registration source and the plan as JSON. Returns the path of build.ninja."""
    root, build = Path(plan["root"]), Path(plan["root"], plan["build_dir"])
    for name in ("objects", "libraries"):
        (build / name).mkdir(parents=True, exist_ok=True)
    lines = [
        "ninja_required_version = 1.5",
        f"builddir = {plan['build_dir']}",
        "rule run",
        "  command = $shown",
        "  description = $about",
        "",
    ]
    for item in plan["precompiled"]:
        (root / item["log"]).parent.mkdir(parents=True, exist_ok=True)
        # g++ wants the plain header beside the compiled one, for the day that it does not fit.
        header = os.path.relpath(root / "kernels" / "cuda_tui.h", (root / item["header"]).parent)
        (root / item["header"]).write_text(f'#include "{header}"\n', encoding="utf-8")
        if not item["ready"]:
            lines += ninja_edge(item["object"], [], item, f"precompile {item['source']}")
    for item in plan["objects"]:
        if not item["ready"]:
            needs = [item["precompiled"]] if item.get("precompiled") else []
            lines += ninja_edge(item["object"], needs, item, f"compile {item['source']}")
    if plan["link"]:
        (root / plan["registration"]).write_text(REGISTRATION.format(namespace=plan["namespace"]), encoding="utf-8")
        if not plan["link"]["ready"]:
            needs = [item["object"] for item in plan["objects"]]
            lines += ninja_edge(plan["library"], needs, plan["link"], f"link {os.path.basename(plan['library'])}")
        manifest = {key: plan[key] for key in ("identity", "namespace", "target", "pybind", "foreign_namespaces")}
        manifest["torch"] = plan["torch"]["version"]
        (root / plan["library"]).with_suffix(".json").write_text(json.dumps(manifest), encoding="utf-8")
    ninja = build / "build.ninja"
    ninja.write_text("\n".join(lines) + "\n", encoding="utf-8")
    (build / "plan.json").write_text(json.dumps(plan, indent=1), encoding="utf-8")
    return ninja


def ninja_edge(output, needs, item, about):
    """One step. Its output appears by rename, so a file that exists is whole; its messages are kept beside it."""
    part, log = shlex.quote(output + ".part"), shlex.quote(item["log"])
    command = f"{shlex.join(item['command'])} {part} >{log} 2>&1; code=$?; cat {log}; "
    command += f"[ $code -eq 0 ] && mv {part} {shlex.quote(output)}"
    # `$` is ninja's own sign; `:` and blanks end a path.
    paths = [re.sub(r"([$ :])", r"$\1", path) for path in (output, *needs)]
    return [
        f"build {paths[0]}: run {' '.join(paths[1:])}",
        f"  shown = {command.replace('$', '$$')}",
        f"  about = {about.replace('$', '$$')}",
        "",
    ]


class Lock:
    """One build at a time in one folder. The lock dies with its holder; a marker without a lock is stale."""

    def __init__(self, build):
        self.build = Path(build)
        self.notes = []

    def __enter__(self):
        self.build.mkdir(parents=True, exist_ok=True)
        self.file = open(self.build / "lock.os", "a+", encoding="ascii")
        marker = self.build / "lock"
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = marker.read_text(encoding="ascii", errors="replace").strip() if marker.exists() else ""
            self.file.close()
            raise BuildError(
                f"a build is already running here (pid {holder or 'unknown'}): wait for it or end it"
            ) from None
        if marker.exists():
            holder = marker.read_text(encoding="ascii", errors="replace").strip()
            self.notes.append(f"cleared the stale build marker of {'pid ' + holder if holder else 'an unknown build'}")
        marker.write_text(str(os.getpid()), encoding="ascii")
        return self

    def __exit__(self, *_):
        (self.build / "lock").unlink(missing_ok=True)
        self.file.close()


def build_plan(plan, stream=sys.stderr):
    """Runs ninja where something is missing. Raises BuildError with the compiler's own words."""
    if all(item["ready"] for item in plan["objects"]) and (not plan["link"] or plan["link"]["ready"]):
        return
    if plan["tools"]["ninja"] is None:
        raise BuildError(f"ninja is missing: {sys.executable} -m pip install ninja")
    with Lock(Path(plan["root"], plan["build_dir"])) as lock:
        for note in [*lock.notes, *(note for note in plan["notes"] if note.startswith("rebuilt:"))]:
            print(note, file=stream)
        ninja = write_plan(plan)
        command = [plan["tools"]["ninja"], "-f", str(ninja), "-j", str(plan["jobs"])]
        print(f"building the extension ({plan['target']})", file=stream)
        done = subprocess.run(command, cwd=plan["root"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", check=False, pass_fds=[lock.file.fileno()])  # fmt: skip
        if done.returncode != 0:
            raise BuildError(f"the build failed\n{done.stdout}{done.stderr}")


# ---- loading

NAMESPACES = []  # of the loaded operators


def load(library):
    """Loads a built library and registers its operators; returns the places to look names up in."""
    import ctypes

    import torch

    library = Path(library).resolve()
    manifest = json.loads(library.with_suffix(".json").read_text(encoding="utf-8"))
    places = []
    if manifest["pybind"]:
        from importlib.machinery import ExtensionFileLoader

        spec = importlib.util.spec_from_file_location(MODULE, library, loader=ExtensionFileLoader(MODULE, str(library)))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        places.append(module)
    try:
        handle = ctypes.CDLL(str(library))
    except OSError as error:
        raise BuildError(
            f"{library.name} was built for torch {manifest['torch']} and does not load in torch {torch.__version__}:\n"
            f"{error}\nRemove .cuda-tui/build and build again."
        ) from None
    message = ctypes.create_string_buffer(4096)
    if handle.cuda_tui_register(message, len(message)) != 0:
        raise BuildError(f"registering the operators failed: {message.value.decode('utf-8', 'replace')}")
    NAMESPACES[:] = [manifest["namespace"], *manifest["foreign_namespaces"]]
    return places + [getattr(torch.ops, name) for name in NAMESPACES]


def shape_function(name):
    """Decorator: how an operator's outputs look, which torch.compile needs to take it into its graphs.

        @cuda_extension.shape_function("my_op")
        def _(x, factor):
            return torch.empty_like(x)      # shape, dtype and device; no values

    Without one, a model that calls the operator breaks torch.compile. Not for functions of a pybind module.
    """

    def register(function):
        import torch

        for space in NAMESPACES:
            if hasattr(getattr(torch.ops, space), name):
                torch.library.register_fake(f"{space}::{name}", function)
                return function
        raise AttributeError(f"the extension has no operator {name}: register it with CUDA_TUI_OPS in kernels/")

    return register


def built_library():
    """The library of the sources as they are now, built if need be. CUDA_TUI_LIBRARY names one that is ready."""
    named = os.environ.get("CUDA_TUI_LIBRARY")
    if named:
        return named
    plan = make_plan(ROOT, parse([]))
    build_plan(plan)
    if not plan["library"]:
        raise BuildError(f"nothing to load: {plan['link_reason']}")
    return ROOT / plan["library"]


def __getattr__(name):
    """An operator or function of the extension."""
    if name.startswith("__") or "PLACES" not in globals():
        raise AttributeError(name)
    for place in PLACES:
        try:
            found = getattr(place, name)
        except AttributeError:
            continue
        function = getattr(found, "default", found)
        globals()[name] = function
        return function
    raise AttributeError(f"the extension has no operator {name}: register it with CUDA_TUI_OPS in a file in kernels/")


def parse(arguments):
    """The command line; every option also has its default for the import."""
    parser = argparse.ArgumentParser(description="Builds the extension in kernels/.")
    parser.add_argument("command", nargs="?", choices=("plan", "build"), default="build")
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--write", action="store_true", help="with plan: also write build.ninja")
    parser.add_argument("--build-dir", default=None, help=f"default: {BUILD}")
    parser.add_argument("--device", default=None)
    parser.add_argument("--cxx", default=None)
    parser.add_argument("--nvcc", default=None)
    parser.add_argument("--cuda-home", default=None)
    parser.add_argument("--architectures", default=None, help="sm_80,sm_90a")
    parser.add_argument("--jobs", type=int, default=None)
    return parser.parse_args(arguments)


def main(arguments):
    """Returns the exit code."""
    options = parse(arguments)
    try:
        plan = make_plan(options.root, options)
        if options.command == "build":
            build_plan(plan)
            answer = plan["library"] or plan["link_reason"]
        else:
            if options.write:
                write_plan(plan)
            commands = "\n".join(shlex.join(item["command"]) for item in plan["objects"])
            answer = json.dumps(plan) if options.json else commands
    except BuildError as error:
        answer = json.dumps({"error": str(error), "kind": error.kind}) if options.json else f"cuda_extension: {error}"
        sys.stdout.write(answer + "\n")
        return 1
    sys.stdout.write(answer + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
if __name__ == "cuda_extension":  # imported by the model; a tool that only wants the plan loads it by another name
    PLACES = load(built_library())
