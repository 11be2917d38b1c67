"""What a build of this workspace does, as plain data: sources, flags, commands, names. Runs no compiler.

Used by `cuda_extension.py`, which documents it. Standard library only. This file is protected.
"""

import functools
import hashlib
import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent
BUILD = ".cuda-tui/build"
SUFFIXES = (".cpp", ".cc", ".cxx", ".cu")
# IEEE results for NaN, infinity and signed zero are kept: no -ffast-math, whose start-up code would also change how
# denormals behave in the whole process. Reductions vectorise through `#pragma omp simd reduction(...)`.
CXX_FLAGS = "-O3 -march=native -fno-math-errno -fno-trapping-math -ffp-contract=fast -fopenmp"
CXX_COMMON = "-std=c++20 -fPIC -fvisibility=hidden -Wall"
NVCC_FLAGS = "-O3 -std=c++17 --expt-relaxed-constexpr -lineinfo -Xcompiler=-fPIC,-fvisibility=hidden -Xptxas=-v"
STABLE_ABI = "-DTORCH_TARGET_VERSION=0x020a000000000000"  # built with newer headers, loads on torch 2.10 and later
MODULE = "cuda_tui_ext"  # what PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) is called
# What `// cuda-tui: flags ...` in a source may ask for: nothing that changes NaN, infinity or the whole process.
ALLOWED_FLAGS = re.compile(
    r"-fno-signed-zeros|-fassociative-math|-freciprocal-math|-ffp-contract=off|-funroll-loops|-O2|-g"
    r"|-mprefer-vector-width=(128|256|512)|--use_fast_math|-use_fast_math|--ftz=true|--fmad=(true|false)"
    r"|--maxrregcount=\d+|-maxrregcount=\d+|--extra-device-vectorization"
)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)
FULL_TORCH = re.compile(
    r"torch/(extension|all|torch|script|types|library|python)\.h|ATen/|c10/|pybind11/"
    r"|torch/csrc/(?!stable/|inductor/aoti_torch/)"
)
FOREIGN_NAMESPACE = re.compile(r"\b(?:STABLE_)?TORCH_LIBRARY(?:_FRAGMENT)?\s*\(\s*(\w+)")


class BuildError(RuntimeError):
    """The build cannot start or failed; the text names the cause and the next step."""

    kind = "machine"


class SourceError(BuildError):
    """The sources do not allow a build."""

    kind = "sources"


# ---- what there is


def read_task(root):
    """device, architectures and link of task.toml; defaults where there is none. Reads only flat keys (Python 3.10)."""
    task = {"device": None, "architectures": [], "link": []}
    path = root / "task.toml"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for key in task:
        found = re.search(rf"^{key}[ \t]*=[ \t]*(\[[^\]]*\]|\"[^\"]*\")", text, re.MULTILINE)
        if found:
            words = re.findall(r'"([^"]*)"', found.group(1))
            task[key] = words if found.group(1).startswith("[") else words[0]
    return task


def find_torch():
    """Where torch is and how it was built, without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        raise BuildError(f"torch is not installed for {sys.executable}: install it, or use the interpreter that has it")
    folder = Path(spec.origin).parent
    text = (folder / "version.py").read_text(encoding="utf-8")
    version = re.search(r"__version__ = '([^']+)'", text)
    cuda = re.search(r"^cuda[^=\n]*= '([^']+)'", text, re.MULTILINE)
    c10 = folder / "lib" / "libc10.so"
    new_abi = not c10.exists() or b"__cxx11" in c10.read_bytes()
    return {
        "version": version.group(1) if version else "unknown",
        "cuda": cuda.group(1) if cuda else None,
        "folder": str(folder),
        "cxx11_abi": int(new_abi),
    }


def find_sources(root, device):
    """Sources to compile, relative to the root, and notes on those left out."""
    found = [path for path in root.iterdir() if path.suffix in SUFFIXES and path.is_file()]
    if (root / "kernels").is_dir():
        found += [path for path in (root / "kernels").rglob("*") if path.suffix in SUFFIXES and path.is_file()]
    names = sorted(str(path.relative_to(root)) for path in found)
    if device is None or not device.startswith("cpu"):
        return names, []
    bindings = {name[: -len(".cu")] + "_binding" for name in names if name.endswith(".cu")}
    cuda = [name for name in names if name.endswith(".cu") or os.path.splitext(name)[0] in bindings]
    notes = [f"{name}: CUDA source left out, the task's device is cpu" for name in cuda]
    return [name for name in names if name not in cuda], notes


def local_includes(root, source):
    """The texts that a source consists of: itself and every header below the root that it includes, by path."""
    texts, waiting = {}, [root / source]
    while waiting:
        path = Path(os.path.normpath(waiting.pop()))
        if path in texts or not path.is_file():
            continue
        texts[path] = path.read_bytes()
        for _, name in INCLUDE.findall(texts[path].decode("utf-8", "replace")):
            waiting += [folder / name for folder in (path.parent, root / "kernels", root)]
    return texts


def file_identity(path):
    """Changes when the program at `path` is replaced: real path, size, time."""
    if path is None:
        return "none"
    real = os.path.realpath(path)
    status = os.stat(real)
    return f"{real}:{status.st_size}:{status.st_mtime_ns}"


@functools.cache
def processor():
    """What -march=native means here: architecture, model and features."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
    except OSError:
        return platform.machine()
    lines = [
        line for line in text.splitlines() if re.match(r"(model|vendor_id|flags|Features|cpu family|CPU part)", line)
    ]
    return platform.machine() + "\n".join(lines)


def find_tools(options):
    """Paths of compiler, nvcc, CUDA folder and ninja; None where there is none."""
    search = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
    cxx = options.cxx or os.environ.get("CXX")
    candidates = [shlex.split(cxx)[0]] if cxx else ["g++", "c++", "clang++"]
    cxx = next((found for name in candidates if (found := shutil.which(name, path=search))), None)
    if cxx is None:
        raise BuildError(f"no C++ compiler ({', '.join(candidates)}): install g++ (apt install g++), or set CXX")
    home = options.cuda_home or os.environ.get("CUDA_HOME")
    nvcc = options.nvcc or (os.path.join(home, "bin", "nvcc") if home else None) or shutil.which("nvcc", path=search)
    ninja = shutil.which("ninja", path=search)
    return {"cxx": cxx, "nvcc": nvcc, "cuda_home": home or (toolkit_root(nvcc) if nvcc else None), "ninja": ninja}


def toolkit_root(nvcc):
    """The folder that holds include/cuda_runtime.h, asked of nvcc itself: a wrapper's place says nothing."""
    command = [nvcc, "--dryrun", "-x", "cu", os.devnull]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    top = re.search(r"^#\$ TOP=(.+)$", answer.stderr + answer.stdout, re.MULTILINE)
    guesses = [top.group(1).strip()] if top else []
    guesses.append(os.path.dirname(os.path.dirname(os.path.realpath(nvcc))))
    for guess in guesses:
        root = os.path.realpath(guess)
        if os.path.exists(os.path.join(root, "include", "cuda_runtime.h")):
            return root
    raise BuildError(f"{nvcc} names no folder with include/cuda_runtime.h: set CUDA_HOME to the CUDA toolkit")


def attached(device):
    """The own target of the GPU that the device means ("cuda:1", under CUDA_VISIBLE_DEVICES), asked of nvidia-smi."""
    query = ["nvidia-smi", "--query-gpu=uuid,compute_cap", "--format=csv,noheader"]
    if not shutil.which(query[0]):
        return []
    answer = subprocess.run(query, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    gpus = re.findall(r"^(GPU-[^,\s]+), *(\d+\.\d)$", answer.stdout, re.MULTILINE)
    limit, number = os.environ.get("CUDA_VISIBLE_DEVICES"), (device or "cuda").partition(":")[2]
    words = [str(index) for index in range(len(gpus))] if limit is None else [word.strip() for word in limit.split(",")]
    word = words[int(number or 0)] if int(number or 0) < len(words) else ""
    chosen = [gpu for index, gpu in enumerate(gpus) if word == str(index) or (word and gpu[0].startswith(word))]
    # A slice of a GPU (MIG-...) is not in this list: it has the capability of its GPU, told where all have the same.
    found = {gpu[1] for gpu in (gpus if word.startswith("MIG-") else chosen)}
    return [each + ("a" if float(each) >= 9 else "") for each in found] if len(found) == 1 else []


def architectures(options, task):
    """CUDA targets as nvcc writes them ("90a"), from the option, task.toml, TORCH_CUDA_ARCH_LIST, or the device."""
    named = options.architectures or task["architectures"] or os.environ.get("TORCH_CUDA_ARCH_LIST", "")
    words = re.split(r"[;,\s]+", named) if isinstance(named, str) else named
    words = [word for word in words if word and word != "native"]
    words = words or attached(options.device or task["device"])
    if not words:
        raise BuildError('no GPU and no CUDA target named: set architectures = ["sm_90a"] in task.toml')
    targets = []
    for word in words:
        found = re.fullmatch(r"(?:sm_|compute_)?(\d{1,2})\.?(\d)([af]?)(\+PTX)?", word)
        if not found:
            raise BuildError(f"{word} is no CUDA target: write sm_90, 9.0, 90 or 90a")
        targets.append("".join(part or "" for part in found.groups()))
    return targets


# ---- the plan


def make_plan(root, options):
    """Everything the build does, as plain data: commands, files, what is up to date. Runs no compiler."""
    root = Path(root)
    task, torch, tools = read_task(root), find_torch(), find_tools(options)
    device = options.device or task["device"]
    names, notes = find_sources(root, device)
    if not names:
        raise SourceError(f"no sources in {root / 'kernels'}: add a .cpp (CPU), or X.cu with X_binding.cpp (CUDA)")
    cuda = any(name.endswith(".cu") for name in names) or bool(device and device.startswith("cuda"))
    if cuda and tools["nvcc"] is None:
        raise BuildError("CUDA sources, and no nvcc: install the CUDA toolkit, or set CUDA_HOME")
    targets = architectures(options, task) if cuda else []
    build = Path(options.build_dir or BUILD)
    context = {"root": root, "build": build, "torch": torch, "tools": tools, "cuda": cuda, "targets": targets}
    objects = [plan_object(context, name) for name in names]
    notes += [f"{item['source']}: {item['note']}" for item in objects if item["note"]]
    plan = {
        "root": str(root),
        "build_dir": str(build),
        "torch": torch,
        "tools": tools,
        "target": ",".join(f"sm_{target}" for target in targets) if cuda else "cpu",
        "python": f"{sysconfig.get_config_var('SOABI')}",
        "pybind": any(item["pybind"] for item in objects),
        "foreign_namespaces": sorted({name for item in objects for name in item["foreign_namespaces"]}),
        "objects": objects,
        "precompiled": plan_precompiled(context, objects),
        "jobs": options.jobs or usable_jobs(),
        "notes": notes,
    }
    plan.update(plan_link(context, task, plan))
    if plan["link"] and not plan["link"]["ready"]:
        notes += rebuilt_because(root / build, torch)
    return plan


def rebuilt_because(build, torch):
    """A note where the last build here was for another torch: its library would not load, or not rightly."""
    try:
        before = json.loads((build / "plan.json").read_text(encoding="utf-8"))["torch"]["version"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [f"rebuilt: torch {before} to {torch['version']}"] if before != torch["version"] else []


def plan_object(context, name):
    """One source: its command and the object's name, which is the hash of all that goes into it."""
    texts = local_includes(context["root"], name)
    joined = "\n".join(text.decode("utf-8", "replace") for text in texts.values())
    includes = [found for _, found in INCLUDE.findall(joined)]
    full = any(FULL_TORCH.match(found) for found in includes)
    stable = not full and any(found.startswith(("torch/", "cuda_tui.h")) for found in includes)
    compiler, flags = compiler_flags(context, name, full, stable)
    flags += extra_flags(name, texts[context["root"] / name])
    key = digest(
        *[f"{os.path.relpath(path, context['root'])}:{digest(texts[path])}" for path in sorted(texts)],
        name, *flags, file_identity(compiler), file_identity(context["tools"]["cxx"]),
        context["torch"]["version"] if full or stable else "", processor() if "-march=native" in flags else "",
        os.environ.get("NVCC_PREPEND_FLAGS", ""), os.environ.get("NVCC_APPEND_FLAGS", ""),
    )  # fmt: skip
    stem = context["build"] / "objects" / f"{Path(name).stem}-{key[:20]}"
    return {
        "source": name,
        "object": f"{stem}.o",
        "log": f"{stem}.log",
        "key": key,
        "command": [compiler, *flags, "-c", name, "-o"],
        "cuda": name.endswith(".cu"),
        "precompile": stable and not name.endswith(".cu") and is_gcc(compiler),
        "ready": (context["root"] / f"{stem}.o").exists(),
        "pybind": "PYBIND11_MODULE" in joined,
        "foreign_namespaces": FOREIGN_NAMESPACE.findall(joined) if "cuda_tui.h" not in includes else [],
        "note": "includes the full torch headers: about 14 s a compile; cuda_tui.h takes under 1 s" if full else "",
    }


def compiler_flags(context, name, full, stable):
    """Compiler and flags of one source."""
    torch, tools = context["torch"], context["tools"]
    include = os.path.join(torch["folder"], "include")
    flags = ["-Ikernels", "-I."]
    if full:
        python = sysconfig.get_paths()["include"]
        if not os.path.exists(os.path.join(python, "Python.h")):
            raise BuildError(f"{name} needs Python.h, not found in {python}: install the headers (apt: python3-dev)")
        flags += ["-isystem", include, "-isystem", f"{include}/torch/csrc/api/include", "-isystem", python]
        flags += [f"-DTORCH_EXTENSION_NAME={MODULE}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
        flags += [f"-D_GLIBCXX_USE_CXX11_ABI={torch['cxx11_abi']}"]
    elif stable:
        # The current-stream getter is declared under USE_CUDA; in a CPU build nothing refers to it.
        flags += ["-isystem", include, STABLE_ABI, "-DUSE_CUDA"]
    if not name.endswith(".cu"):
        if context["cuda"]:
            flags += [*(["-DUSE_CUDA"] if full else []), "-isystem", f"{tools['cuda_home']}/include"]
        return tools["cxx"], [*CXX_FLAGS.split(), *CXX_COMMON.split(), *flags]
    codes = [gencode(target) for target in context["targets"]]
    base = NVCC_FLAGS.replace("c++17", "c++20") if full else NVCC_FLAGS
    own = os.environ.get("NVCC_PREPEND_FLAGS", "") + os.environ.get("NVCC_APPEND_FLAGS", "")
    host = [] if "-ccbin" in own or "--compiler-bindir" in own else ["-ccbin", tools["cxx"]]
    return tools["nvcc"], [*base.split(), *host, *codes, *flags]


def gencode(target):
    """nvcc's words for one target; "+PTX" also keeps the portable form."""
    number = target.replace("+PTX", "")
    codes = f"sm_{number},compute_{number}" if target.endswith("+PTX") else f"sm_{number}"
    return f"-gencode=arch=compute_{number},code=[{codes}]"


def extra_flags(name, text):
    """Flags that a source asks for itself: `// cuda-tui: flags -funroll-loops`."""
    words = [word for line in re.findall(rb"^// cuda-tui: flags (.+)$", text, re.MULTILINE) for word in line.split()]
    flags = [word.decode("utf-8", "replace") for word in words]
    refused = [flag for flag in flags if not ALLOWED_FLAGS.fullmatch(flag)]
    if refused:
        raise SourceError(
            f"{name} asks for {' '.join(refused)}, which is not allowed: allowed is {ALLOWED_FLAGS.pattern}"
        )
    return flags


def is_gcc(compiler):
    """Whether precompiled headers work the way g++ has them."""
    return "clang" not in os.path.basename(os.path.realpath(compiler))


def plan_precompiled(context, objects):
    """cuda_tui.h compiled once for all sources with the same flags: 3 s saved at each later compile."""
    header = context["root"] / "kernels" / "cuda_tui.h"
    wanting = [item for item in objects if item["precompile"]]
    if not wanting or not header.exists():
        return []
    made = {}
    texts = local_includes(context["root"], "kernels/cuda_tui.h")
    for item in wanting:
        compiler, flags = item["command"][0], item["command"][1 : item["command"].index("-c")]
        # Where CUDA's headers are does not matter to this one: a CPU and a CUDA workspace share it.
        cuda_headers = f"{context['tools']['cuda_home']}/include"
        flags = [flag for flag, after in zip(flags, [*flags[1:], ""], strict=True) if cuda_headers not in (flag, after)]
        key = digest(*[digest(texts[path]) for path in sorted(texts)], *flags, file_identity(compiler),
                     context["torch"]["version"], processor())  # fmt: skip
        folder = context["build"] / "precompiled" / key[:20]
        output = str(folder / "cuda_tui.h.gch")
        item["command"][1:1] = ["-include", str(folder / "cuda_tui.h")]
        item["precompiled"] = output
        made[output] = {
            "source": "kernels/cuda_tui.h",
            "object": output,
            "log": str(folder / "log"),
            "command": [compiler, *flags, "-x", "c++-header", str(folder / "cuda_tui.h"), "-o"],
            "ready": (context["root"] / output).exists(),
            "header": str(folder / "cuda_tui.h"),
        }
    return list(made.values())


def plan_link(context, task, plan):
    """The library: its name, namespace, registration source and link command; or why it is not linked."""
    torch, cuda = context["torch"], context["cuda"]
    if cuda and torch["cuda"] is None:
        return {"link": None, "library": None, "link_reason": "torch has no CUDA here: compiled, not linked"}
    libraries = library_flags(context, task, plan["pybind"])
    identity = digest(*[item["key"] for item in plan["objects"]], *libraries, torch["version"], plan["python"])[:16]
    namespace = f"cuda_tui_{identity}"
    stem = context["build"] / "libraries" / f"extension-{identity}"
    # Linked with the objects before it, so that every registration is listed when it runs.
    command = [context["tools"]["cxx"], "-shared", "-fPIC", "-fvisibility=hidden", "-O1",
               *[item["object"] for item in plan["objects"]], f"{stem}.cpp", *libraries, "-o"]  # fmt: skip
    library = f"{stem}.so"
    return {
        "identity": identity,
        "namespace": namespace,
        "registration": f"{stem}.cpp",
        "library": library,
        "link": {"command": command, "log": f"{stem}.log", "ready": (context["root"] / library).exists()},
        "link_reason": "",
    }


def library_flags(context, task, pybind):
    """What to link: torch, the very OpenMP runtime that torch uses (a second one ignores set_num_threads), CUDA."""
    torch, tools = context["torch"], context["tools"]
    lib = Path(torch["folder"]) / "lib"
    flags = [f"-L{lib}", "-ltorch_cpu", "-lc10"]
    flags += ["-ltorch", "-ltorch_python"] if pybind else []
    openmp = sorted([*lib.glob("libgomp*.so*"), *lib.glob("libiomp5.so")])
    flags += [f"-l:{openmp[0].name}"] if openmp else ["-fopenmp"]
    if platform.machine() == "x86_64" and is_gcc(tools["cxx"]):
        flags += ["-Wl,--push-state,--as-needed", "-lmvec", "-lm", "-Wl,--pop-state"]
    if context["cuda"]:
        packages = sorted(Path(torch["folder"]).parent.glob("nvidia/*/lib"))
        flags += ["-ltorch_cuda", "-lc10_cuda"]
        for name in ["cudart", *task["link"]]:
            wheel = sorted(found for folder in packages for found in folder.glob(f"lib{name}.so*"))
            flags += [f"-L{wheel[0].parent}", f"-l:{wheel[0].name}"] if wheel else [f"-l{name}"]
        flags += [f"-L{tools['cuda_home']}/lib64", f"-L{tools['cuda_home']}/targets/x86_64-linux/lib"]
    elif task["link"]:
        flags += [f"-l{name}" for name in task["link"]]
    return flags


def usable_jobs():
    """Compilers to run at once: min(cores, memory / 4 GB) as the control group has them; MAX_JOBS wins."""
    named = os.environ.get("MAX_JOBS", "")
    if named.isdigit() and int(named) > 0:
        return int(named)
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for name, scale in (("cpu.max", None), ("memory.max", 1)):
        try:
            words = Path("/sys/fs/cgroup", name).read_text(encoding="ascii").split()
        except OSError:
            continue
        if words[0] != "max" and scale is None:
            cores = min(cores, max(1, int(words[0]) // int(words[1])))
        elif words[0] != "max":
            memory = min(memory, int(words[0]))
    return max(1, min(cores, memory // (4 << 30)))


def digest(*parts):
    """One hash of several texts."""
    state = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogateescape")
        state.update(str(len(data)).encode() + b":" + data)
    return state.hexdigest()
