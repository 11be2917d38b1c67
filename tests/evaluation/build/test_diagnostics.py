from cuda_tui.evaluation.build import ptxas
from cuda_tui.evaluation.build.diagnostics import is_out_of_memory, parse
from cuda_tui.evaluation.build.vectorisation import parse as parse_loops

GCC = """[1/2] compile kernels/big.cpp
FAILED: [code=1] .cuda-tui/build/objects/big.o
/usr/bin/g++ -O3 -c kernels/big.cpp -o big.o
kernels/big.cpp: In function ‘int w0()’:
kernels/big.cpp:2:15: warning: unused variable ‘unused0’ [-Wunused-variable]
    2 | int w0(){ int unused0; return 0;}
      |               ^~~~~~~
kernels/big.cpp: In function ‘int bad()’:
kernels/big.cpp:202:19: error: ‘not_declared’ was not declared in this scope
  202 | int bad(){ return not_declared;}
      |                   ^~~~~~~~~~~~
kernels/big.cpp:203:5: error: no matching function for call to ‘f(const char [2])’
  203 |     f("x");
      |     ~^~~~~
kernels/big.cpp:200:6: note: candidate: ‘void f(int)’
  200 | void f(int);
      |      ^
ninja: build stopped: subcommand failed.
"""


def test_first_error_stands_above_warnings_with_its_source_lines() -> None:
    first, second, warning = parse(GCC.splitlines())
    assert first.place == "kernels/big.cpp:202"
    assert first.column == 19
    assert "not_declared" in first.message
    assert first.context == ("  202 | int bad(){ return not_declared;}", "      |                   ^~~~~~~~~~~~")
    assert second.severity == "error"
    assert warning.severity == "warning"


def test_notes_are_folded_into_their_error() -> None:
    second = parse(GCC.splitlines())[1]
    assert "note: kernels/big.cpp:200: candidate: ‘void f(int)’" in second.context
    assert not [item for item in parse(GCC.splitlines()) if item.severity == "note"]


def test_repeated_error_of_two_architectures_is_one() -> None:
    line = 'kernels/a.cu(7): error: identifier "foo" is undefined'
    found = parse([line, "    int x = foo;", "            ^", "", line, "2 errors detected in the compilation"])
    assert len(found) == 1
    assert found[0].place == "kernels/a.cu:7"
    assert found[0].context == ("    int x = foo;", "            ^")


def test_brackets_in_a_message_stay_as_they_are() -> None:
    (found,) = parse(["kernels/a.cu(12): error: in a[i][/*x*/j] array index"])
    assert found.message == "in a[i][/*x*/j] array index"


def test_linker_driver_and_ptxas_messages_are_errors() -> None:
    found = parse(
        [
            "/usr/bin/ld: a.o: in function `f':",
            "a.cpp:(.text+0x5): undefined reference to `launch'",
            "/usr/bin/ld: cannot find -lcublas: No such file or directory",
            "collect2: error: ld returned 1 exit status",
            "nvcc fatal   : Unsupported gpu architecture 'compute_50'",
            "ptxas error   : Entry function 'k' uses too much shared data (0x20000 bytes, 0xc000 max)",
        ]
    )
    assert [item.severity for item in found] == ["error"] * 4
    assert found[0].message == "undefined reference to `launch'"
    assert found[1].message.startswith("cannot find -lcublas")
    assert "Unsupported gpu architecture" in found[2].message
    assert "too much shared data" in found[3].message


def test_template_backtrace_keeps_the_error_at_its_own_place() -> None:
    found = parse(
        [
            "In file included from kernels/a.cpp:1:",
            "kernels/v.h: In instantiation of ‘T twice(T) [with T = S]’:",
            "kernels/a.cpp:9:8:   required from here",
            "kernels/v.h:3:12: error: no match for ‘operator*’ (operand types are ‘int’ and ‘S’)",
            "    3 |   return 2 * x;",
            "      |          ~~^~~",
        ]
    )
    assert [item.place for item in found] == ["kernels/v.h:3"]


def test_compiler_killed_for_memory_is_told_from_an_error() -> None:
    assert is_out_of_memory("g++: fatal error: Killed signal terminated program cc1plus")
    assert not is_out_of_memory(GCC)


def test_ptxas_lines_become_resources_per_architecture() -> None:
    log = """ptxas info    : Compiling entry function '_Z1kPf' for 'sm_80'
ptxas info    : Function properties for _Z1kPf
    8 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 1024 bytes smem, 384 bytes cmem[0]
ptxas info    : Compiling entry function '_Z1kPf' for 'sm_90a'
ptxas info    : Function properties for _Z1kPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers
"""
    first, second = ptxas.parse(log.splitlines())
    assert (first.registers, first.static_shared_bytes, first.stack_bytes) == (40, 1024, 8)
    assert (first.spill_store_bytes, first.spill_load_bytes, first.architecture) == (16, 24, "sm_80")
    assert (second.architecture, second.registers, second.static_shared_bytes) == ("sm_90a", 12, 0)
    assert ptxas.demangled([first])[0].kernel in ("k(float*)", "_Z1kPf")


def test_loop_that_was_vectorised_has_no_reason_against_it() -> None:
    notes = parse_loops(
        [
            "kernels/a.cpp:10:3: missed: couldn't vectorize loop",
            "kernels/a.cpp:10:3: optimized: loop vectorized using 32 byte vectors",
            "kernels/a.cpp:20:3: missed: couldn't vectorize loop",
            "kernels/a.cpp:20:9: missed: not vectorized: control flow in loop.",
            "/usr/include/c++/12/bits/stl_vector.h:9:3: missed: couldn't vectorize loop",
        ]
    )
    assert notes == [
        "kernels/a.cpp:10: loop vectorized using 32 byte vectors",
        "kernels/a.cpp:20: not vectorized: control flow in loop.",
    ]
