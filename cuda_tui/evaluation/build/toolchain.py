"""Compilers, CUDA toolkit and their versions: what is there, whether it fits together, and what to do if not."""

import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from cuda_tui.evaluation.build.plan import Plan
from cuda_tui.records import Record

ASK_TIMEOUT_S = 60.0
OLDER_COMPILERS = range(20, 7, -1)  # g++-20 down to g++-8 are tried where the found one is too new for nvcc
CXX_PROBE = (
    "#include <cstdio>\n#pragma omp declare simd\nint twice(int x) { return 2 * x; }\nint main() { return twice(0); }\n"
)
CUDA_PROBE = "#include <cuda_runtime.h>\n__global__ void probe(float* x) { x[threadIdx.x] *= 2.f; }\n"


State: TypeAlias = Literal["ok", "warning", "missing"]


class Finding(Record):
    """One thing that the product needs: what was found, or what to do about it."""

    name: str
    state: State
    found: str
    remedy: str = ""


class Toolkit(Record):
    """The CUDA toolkit that builds use, and how it was found."""

    nvcc: str
    root: str
    version: str
    why: str


def describe(plan: Plan) -> str:
    """One line: compilers with versions, and torch."""
    parts = [f"{Path(plan.tools.cxx).name} {compiler_version(plan.tools.cxx) or 'of unknown version'}"]
    if plan.tools.nvcc is not None and any(item.cuda for item in plan.objects):
        parts.append(f"nvcc {nvcc_version(plan.tools.nvcc) or 'of unknown version'}")
    return ", ".join([*parts, f"torch {plan.torch.version}"])


@cache
def compiler_version(program: str) -> str | None:
    """`12.2.0`, from the first line of `--version`; None where the program does not answer."""
    first = _ask([program, "--version"]).partition("\n")[0]
    numbers = re.findall(r"\d+\.\d+(?:\.\d+)?", first)
    return numbers[-1] if numbers else None


@cache
def nvcc_version(program: str) -> str | None:
    """`13.0.88`, or `11.8` where nvcc says no more; None where it does not answer."""
    text = _ask([program, "--version"])
    found = re.search(r"V(\d+\.\d+\.\d+)", text) or re.search(r"release (\d+\.\d+)", text)
    return found.group(1) if found else None


@cache
def known_chips(nvcc: str) -> tuple[int, ...]:
    """The sm numbers that this nvcc makes machine code for, ascending; empty where it does not say (before 11.5)."""
    return tuple(sorted({int(number) for number in re.findall(r"sm_(\d+)", _ask([nvcc, "--list-gpu-code"]))}))


def unknown_targets(nvcc: str, targets: Sequence[str]) -> str:
    """Which of the targets ("sm_90a") this nvcc cannot build for, with the newest that it can; empty where it can all.

    nvcc lists chips without their suffix: "a" came with CUDA 12.0, "f" with 12.9 (their release notes).
    """
    chips, version = known_chips(nvcc), nvcc_version(nvcc) or ""
    if not chips or not version:
        return ""
    refused = [name for name in targets if not _is_known(name, chips, _version(version))]
    if not refused:
        return ""
    last = str(chips[-1])
    return f"nvcc {version} ({nvcc}) knows no {', '.join(refused)}; the newest target that it knows is sm_{last}."


def _is_known(name: str, chips: Sequence[int], version: tuple[int, ...]) -> bool:
    found = re.fullmatch(r"sm_(\d+)([af]?)(?:\+PTX)?", name)
    since = {"": (0,), "a": (12, 0), "f": (12, 9)}
    return found is not None and int(found[1]) in chips and version >= since[found[2]]


def processor_name() -> str:
    """The processor that -march=native builds for: such a binary runs on no lesser one."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else platform.machine()


# ---- C++


def find_cxx(env: Mapping[str, str]) -> str | None:
    """The C++ compiler: CXX, else the first of g++, c++, clang++ on PATH."""
    named = shlex.split(env.get("CXX", ""))[:1]
    return next(
        (found for name in named or ("g++", "c++", "clang++") if (found := shutil.which(name, path=_path(env)))), None
    )


def check_cxx(env: Mapping[str, str]) -> Finding:
    """Whether a C++ compiler is there and compiles a file with OpenMP."""
    compiler = find_cxx(env)
    if compiler is None:
        named = env.get("CXX")
        found = f"CXX={named} names no program" if named else "none of g++, c++, clang++ on PATH"
        return Finding(name="C++ compiler", state="missing", found=found, remedy="apt install g++, or set CXX")
    output = _compile([compiler, "-std=c++20", "-fopenmp", "-march=native", "-x", "c++", "-c"], CXX_PROBE, ".cpp", env)
    about = f"{compiler} {compiler_version(compiler) or ''}".strip()
    if output is not None:
        remedy = "it must accept -std=c++20 -fopenmp -march=native: install a newer g++, or set CXX"
        return Finding(
            name="C++ compiler", state="missing", found=f"{about} fails: {_first_line(output)}", remedy=remedy
        )
    return Finding(name="C++ compiler", state="ok", found=about)


# ---- the CUDA toolkit


def find_toolkit(env: Mapping[str, str]) -> Toolkit | Finding:
    """The toolkit, or a finding that says why there is none. CUDA_HOME wins and is checked; else nvcc is asked."""
    home = env.get("CUDA_HOME") or env.get("CUDA_PATH")
    if home:
        nvcc = str(Path(home, "bin", "nvcc"))
        lacking = [name for name in ("bin/nvcc", "include/cuda_runtime.h") if not Path(home, name).exists()]
        version = nvcc_version(nvcc) if "bin/nvcc" not in lacking else None
        if version is not None and lacking == ["include/cuda_runtime.h"]:
            return Toolkit(nvcc=nvcc, root=home, version=version, why="CUDA_HOME, which has no CUDA headers")
        if version is None or lacking:
            what = f"lacks {' and '.join(lacking)}" if lacking else "has an nvcc that does not run"
            remedy = "set CUDA_HOME to a whole CUDA toolkit, or unset it"
            return Finding(name="CUDA toolkit", state="missing", found=f"CUDA_HOME={home} {what}", remedy=remedy)
        return Toolkit(nvcc=nvcc, root=str(Path(home).resolve()), version=version, why="CUDA_HOME")
    found = shutil.which("nvcc", path=_path(env))
    if found is None:
        remedy = "for CUDA: install the CUDA toolkit (nvcc), or set CUDA_HOME"
        return Finding(name="CUDA toolkit", state="missing", found="no nvcc on PATH", remedy=remedy)
    return _toolkit_of(found)


def _toolkit_of(nvcc: str) -> Toolkit | Finding:
    """The root that nvcc itself names; a wrapper's or a link's own place says nothing."""
    version = nvcc_version(nvcc)
    answer = _ask([nvcc, "--dryrun", "-x", "cu", os.devnull])
    top = re.search(r"^#\$ TOP=(.+)$", answer, re.MULTILINE)
    guesses = [(top.group(1).strip(), "named by nvcc --dryrun")] if top else []
    guesses.append((str(Path(os.path.realpath(nvcc)).parent.parent), "where the nvcc link leads"))
    for guess, why in guesses:
        if version is not None and Path(guess, "include", "cuda_runtime.h").exists():
            return Toolkit(nvcc=nvcc, root=os.path.realpath(guess), version=version, why=why)
    tried = ", ".join(guess for guess, _ in guesses)
    remedy = "set CUDA_HOME to the folder that holds bin/nvcc and include/cuda_runtime.h"
    return Finding(
        name="CUDA toolkit", state="missing", found=f"{nvcc}: no include/cuda_runtime.h in {tried}", remedy=remedy
    )


def driver_problem(driver_cuda: str | None, *, torch_cuda: str) -> str:
    """Why the driver cannot run this torch: within one major version of CUDA any can. Empty where it can, or is
    unknown."""
    if driver_cuda is None or _version(driver_cuda)[0] >= _version(torch_cuda)[0]:
        return ""
    return f"its driver supports CUDA {driver_cuda} at most, and torch is built with {torch_cuda}"


def check_cuda_versions(toolkit: Toolkit | None, *, torch_cuda: str | None, driver_cuda: str | None) -> Finding:
    """nvcc, torch and driver side by side. Another major version stops; another minor one is a warning."""
    nvcc = toolkit.version if toolkit else None
    shown = f"nvcc {nvcc or 'none'}, torch {f'built with {torch_cuda}' if torch_cuda else 'without CUDA'}, "
    shown += f"driver {f'up to {driver_cuda}' if driver_cuda else 'none'}"
    name = "CUDA versions"
    if nvcc is None and torch_cuda is None:
        return Finding(name=name, state="warning", found=shown, remedy="nothing to do for CPU tasks")
    if torch_cuda is None:
        remedy = "can compile CUDA, cannot run it: install a CUDA build of torch to run"
        return Finding(name=name, state="warning", found=shown, remedy=remedy)
    if nvcc is None:
        remedy = f"install CUDA toolkit {torch_cuda} to compile"
        return Finding(name=name, state="warning", found=shown, remedy=remedy)
    if nvcc.split(".")[0] != torch_cuda.split(".")[0]:
        remedy = (
            f"major versions differ: install CUDA toolkit {torch_cuda}, or a torch built with {nvcc.split('.')[0]}.x"
        )
        return Finding(name=name, state="missing", found=shown, remedy=remedy)
    if driver_problem(driver_cuda, torch_cuda=torch_cuda):
        remedy = f"the driver is too old for torch: install one for CUDA {torch_cuda}, or an older torch"
        return Finding(name=name, state="missing", found=shown, remedy=remedy)
    if driver_cuda is not None and _version(driver_cuda)[:2] < _version(nvcc)[:2]:
        remedy = "the driver is older than nvcc: machine code for the GPU runs, PTX (sm_XX+PTX) does not"
        return Finding(name=name, state="warning", found=shown, remedy=remedy)
    if _version(nvcc)[:2] != _version(torch_cuda)[:2]:
        return Finding(name=name, state="warning", found=shown, remedy="minor versions differ; usually works")
    return Finding(name=name, state="ok", found=shown)


def check_pair(toolkit: Toolkit, *, env: Mapping[str, str], cache_folder: Path | None) -> Finding:
    """Whether nvcc accepts the host compiler that builds will use: a five-line `.cu` is really compiled.

    The answer is kept under the identity of both programs. The flag that skips nvcc's check is never added.
    """
    host = _host_compiler(env)
    key = _pair_key(toolkit.nvcc, host, env)
    kept = cache_folder / f"pair-{key}.json" if cache_folder else None
    if kept is not None and kept.exists():
        try:
            return msgspec.json.decode(kept.read_bytes(), type=Finding)
        except msgspec.DecodeError:
            kept.unlink()
    finding = _try_pair(toolkit, host, env)
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(msgspec.json.encode(finding))
    return finding


def _try_pair(toolkit: Toolkit, host: str | None, env: Mapping[str, str]) -> Finding:
    name = "nvcc with host compiler"
    if host is None:
        return Finding(name=name, state="missing", found="no host compiler", remedy="apt install g++, or set CXX")
    output = _compile_pair(toolkit.nvcc, host, env)
    about = f"nvcc {toolkit.version} with {host} {compiler_version(host) or ''}".strip()
    if output is None:
        return Finding(name=name, state="ok", found=f"{about} compiles")
    limit = re.search(r"(?:gcc|clang) versions? (?:later than|must be less than) (\d+)", output)
    version = re.search(r"unsupported GNU version", output)
    if not (limit or version):
        return Finding(
            name=name, state="missing", found=f"{about} fails: {_first_line(output)}", remedy="see the message"
        )
    found = f"nvcc {toolkit.version} accepts g++ up to {limit.group(1) if limit else '?'}, found "
    found += f"{_macro_version(host) or compiler_version(host) or 'an unknown version'} at {host}"
    return Finding(name=name, state="missing", found=found, remedy=_working_alternative(toolkit.nvcc, env))


def _working_alternative(nvcc: str, env: Mapping[str, str]) -> str:
    """A host compiler on this machine that nvcc accepts, tried for real."""
    plain = {key: value for key, value in env.items() if key not in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")}
    for name in ("g++", *(f"g++-{number}" for number in OLDER_COMPILERS)):
        found = shutil.which(name, path=_path(env))
        if found and _compile_pair(nvcc, found, plain) is None:
            return f"{found} {compiler_version(found) or ''} works: set CXX={found} (and no other -ccbin)"
    return "install an older g++ (apt install g++-12) and set CXX to it"


def _host_compiler(env: Mapping[str, str]) -> str | None:
    """What nvcc will use: a -ccbin from its own variables, else the compiler that we name."""
    words = shlex.split(f"{env.get('NVCC_PREPEND_FLAGS', '')} {env.get('NVCC_APPEND_FLAGS', '')}")
    for before, word in zip([*words[:1], *words], words, strict=False):
        if before in ("-ccbin", "--compiler-bindir") and word != before:
            return word
        if word.startswith(("-ccbin=", "--compiler-bindir=")):
            return word.partition("=")[2]
    return find_cxx(env)


def _compile_pair(nvcc: str, host: str, env: Mapping[str, str]) -> str | None:
    flags = f"{env.get('NVCC_PREPEND_FLAGS', '')} {env.get('NVCC_APPEND_FLAGS', '')}"
    named = [] if "-ccbin" in flags or "--compiler-bindir" in flags else ["-ccbin", host]
    return _compile([nvcc, *named, "-c"], CUDA_PROBE, ".cu", env)


def _pair_key(nvcc: str, host: str | None, env: Mapping[str, str]) -> str:
    parts = [env.get("NVCC_PREPEND_FLAGS", ""), env.get("NVCC_APPEND_FLAGS", "")]
    for program in (nvcc, host):
        real = os.path.realpath(program) if program else ""
        status = os.stat(real) if real and os.path.exists(real) else None
        parts += [real, f"{status.st_size}:{status.st_mtime_ns}" if status else ""]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def _macro_version(compiler: str) -> str | None:
    """What the compiler says of itself to headers; a wrapper may change it."""
    with tempfile.TemporaryDirectory(prefix="cuda-tui-") as folder:
        source = Path(folder, "empty.cpp")
        source.write_text("", encoding="ascii")
        text = _ask([compiler, "-dM", "-E", "-x", "c++", str(source)])
    found = re.findall(r"#define __GNUC__ (\d+)", text)
    return found[-1] if found else None


# ---- running programs


def _compile(argv: Sequence[str], text: str, suffix: str, env: Mapping[str, str]) -> str | None:
    """None where the text compiles, else what the compiler said."""
    with tempfile.TemporaryDirectory(prefix="cuda-tui-") as folder:
        source = Path(folder, f"probe{suffix}")
        source.write_text(text, encoding="ascii")
        try:
            done = subprocess.run(
                [*argv, str(source), "-o", str(source.with_suffix(".o"))], env=dict(env), capture_output=True,
                text=True, errors="replace", timeout=ASK_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
    return None if done.returncode == 0 else (done.stdout + done.stderr).strip() or f"exit code {done.returncode}"


def _ask(argv: list[str]) -> str:
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=ASK_TIMEOUT_S, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout + done.stderr


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "no output")


def _path(env: Mapping[str, str]) -> str:
    return env.get("PATH", os.defpath)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))
