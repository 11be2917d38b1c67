"""Machine code counted by class and source line, on text in the form of nvdisasm."""

import pytest

from cuda_tui.evaluation.profile.sass import EXCERPT_LINES, class_of, select

TEXT = """\
//cubin silu.1.sm_90a.cubin
	.headerflags	@"EF_CUDA_SM90"
.text._Z4siluPKfPfl:
	//## File "/build/kernels/silu.cu", line 9
        /*0000*/                   LDC R1, c[0x0][0x28] ;
	//## File "/build/kernels/silu.cu", line 12
        /*0010*/                   LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
        /*0020*/              @!P0 LDG.E.128.CONSTANT R8, desc[UR4][R2.64+0x10] ;
	//## File "/usr/include/math.hpp", line 77 inlined at "/build/kernels/silu.cu", line 14
	//## File "/build/kernels/silu.cu", line 14
        /*0030*/                   MUFU.EX2 R5, R4 ;
        /*0040*/                   FFMA R6, R5, R4, RZ ;
	//## File "/build/kernels/silu.cu", line 15
        /*0050*/                   STG.E.128 desc[UR4][R2.64], R4 ;
        /*0060*/                   STL [R1], R21 ;
        /*0070*/                   BRA `(.L_x_1) ;
.text._Z3sumPKf:
	//## File "/build/kernels/sum.cu", line 3
        /*0000*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0010*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24 ;
        /*0020*/                   LDS.64 R4, [R3] ;
"""


def test_instructions_are_counted_by_class_and_width() -> None:
    (kernel,) = select(TEXT, kernel="silu", line=None).kernels
    assert (kernel.name, kernel.architecture, kernel.instructions) == ("silu", "sm_90a", 8)
    assert kernel.classes == {
        "global load, 16 bytes": 2,
        "special function": 1,
        "fp32": 1,
        "global store, 16 bytes": 1,
        "local (spill or array), 4 bytes": 1,
    }


def test_line_that_was_inlined_counts_where_it_stands_in_the_workspace() -> None:
    (kernel,) = select(TEXT, kernel="silu", line=14).kernels
    assert kernel.excerpt_of == "kernels/silu.cu:14"
    assert kernel.excerpt == ("MUFU.EX2 R5, R4", "FFMA R6, R5, R4, RZ")


def test_guards_stay_in_the_excerpt() -> None:
    (kernel,) = select(TEXT, kernel="silu", line=12).kernels
    assert kernel.excerpt[1] == "@!P0 LDG.E.128.CONSTANT R8, desc[UR4][R2.64+0x10]"


def test_without_a_line_the_one_that_works_on_most_data_is_shown() -> None:
    def shown(text: str) -> str:
        (kernel,) = select(text, kernel="silu", line=None).kernels
        return kernel.excerpt_of

    assert shown(TEXT) == "kernels/silu.cu:12", "two loads, where the line of the store has more instructions"
    assert shown(TEXT.replace("MUFU.EX2", "HMMA.16816.F32")) == "kernels/silu.cu:14"
    assert shown(TEXT.replace("LDG.E.128.CONSTANT", "IMAD").replace("STG.E.128", "IMAD")) == "kernels/silu.cu:15"


def test_constant_moved_by_the_half_precision_pipe_is_no_arithmetic() -> None:
    move = "HFMA2.MMA R5, -RZ, RZ, 1.875, 0"
    (kernel,) = select(TEXT.replace("MUFU.EX2 R5, R4", move), kernel="silu", line=14).kernels
    assert kernel.excerpt[0] == move
    assert "fp16" not in kernel.classes
    assert class_of("HFMA2", " R5, R4, R3, RZ") == "fp16"
    assert class_of("HFMA2", " R5, -RZ, R3, RZ") == "fp16"
    assert class_of("HFMA2.MMA", " R5, -RZ, RZ, 0, 5.9604644775390625e-08") == ""


def test_kernels_that_were_not_asked_for_are_named() -> None:
    found = select(TEXT, kernel="silu", line=None)
    assert found.others == ("sum",)
    unknown = select(TEXT, kernel="softmax", line=None)
    assert "softmax" in unknown.problem
    assert unknown.others == ("silu", "sum")


def test_line_without_code_gives_no_excerpt() -> None:
    (kernel,) = select(TEXT, kernel="silu", line=400).kernels
    assert (kernel.excerpt_of, kernel.excerpt) == ("", ())


def test_long_excerpt_is_cut_and_says_so() -> None:
    body = "".join(
        f"        /*{number:04x}*/                   FADD R1, R2, R3 ;\n" for number in range(16, 16 * 60, 16)
    )
    text = f'.text._Z1kv:\n\t//## File "/b/kernels/k.cu", line 2\n{body}'
    (kernel,) = select(text, kernel="", line=None).kernels
    assert len(kernel.excerpt) == EXCERPT_LINES + 1
    assert kernel.excerpt[-1] == "[35 more instructions of this line]"


def test_library_without_gpu_code_is_said_so() -> None:
    assert "no GPU code" in select("nothing", kernel="", line=None).problem


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("LDG.E", "global load, 4 bytes"),
        ("LDG.E.U8.CONSTANT", "global load, 1 byte"),
        ("STS.64", "shared, 8 bytes"),
        ("LDL", "local (spill or array), 4 bytes"),
        ("HMMA.16816.F32", "tensor core (HMMA)"),
        ("HGMMA.64x256x16.F32", "tensor core (HGMMA)"),
        ("SYNCS.PHASECHK.TRANS64", "barrier"),
        ("BSYNC", ""),
        ("WARPSYNC", "warp barrier"),
        ("LDGSTS.E.BYPASS.128", "bulk copy"),
        ("IMAD.WIDE", ""),
    ],
)
def test_classes(opcode: str, expected: str) -> None:
    assert class_of(opcode) == expected
