"""Kernel names as ptxas, CUPTI and ncu spell them."""

import pytest

from cuda_tui.evaluation.profile.names import OwnKernels, base, plain, shown, signature

DEMANGLED = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float>, std::array<char*, 3ul> >(int)"
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fused_kernel(float const*, float*, int)", "fused_kernel"),
        ("void fused<float, 4>(float const*)", "fused"),
        ("void (anonymous namespace)::fused<(int)4>(float const*)", "@::fused"),
        (DEMANGLED, "at::native::vectorized_elementwise_kernel"),
        ("_Z12fused_kernelPKfPfi", "fused_kernel"),
        ("_ZN39_GLOBAL__N__d1b3a2c8_7_silu_cu_1234abcd5fusedILi4EEEvPKf", "@::fused"),
        ("_ZN2at6native3runEv", "at::native::run"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT"),
    ],
)
def test_plain_name_has_namespaces_and_nothing_else(name: str, expected: str) -> None:
    assert plain(name) == expected


def test_base_name_is_what_a_name_filter_of_ncu_matches() -> None:
    assert base(DEMANGLED) == "vectorized_elementwise_kernel"
    assert base("(anonymous namespace)::fused(int)") == "fused"


def test_kernel_of_the_library_is_known_under_every_spelling() -> None:
    own = OwnKernels(["void silu<4>(float const*, float*, long)", "_Z3rmsPKf"])
    assert "void silu<(int)4>(const float *, float *, long)" in own
    assert "silu<4>(float const*, float*, long)" in own
    assert "rms(float const*)" in own
    assert "silu_backward(float*)" not in own


def test_library_kernel_that_a_candidate_merely_instantiates_elsewhere_is_not_its_own() -> None:
    own = OwnKernels(["void cutlass::Kernel<mine>(mine::Params)"])
    assert "void cutlass::Kernel<mine>(mine::Params)" in own
    assert "void cutlass::Kernel<cublas_gemm>(cublas_gemm::Params)" not in own


def test_nothing_is_the_candidates_own_without_a_build() -> None:
    assert "anything" not in OwnKernels.of(None)
    assert not OwnKernels.of(None)


def test_shown_name_keeps_short_template_arguments() -> None:
    assert shown("void silu<4, float>(float const*)") == "silu<4, float>"
    assert shown("(anonymous namespace)::fused(int)") == "(anonymous namespace)::fused"
    long = f"void mine::fused<{', '.join(['float'] * 20)}>(int)"
    assert shown(long) == "mine::fused"


SGEMM = "cutlass_80_simt_sgemm_256x128_8x4_nn_align1"
SILU = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::silu_kernel("
    "at::TensorIteratorBase&)::{lambda()#1}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul> >(int)"
)
TIMES = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float, float, float, "
    "at::native::binary_internal::MulFunctor<float> >, std::array<char*, 2ul> >(int)"
)
MEAN = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float> > >(x)"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"void cutlass::Kernel2<{SGEMM}>({SGEMM}::Params)", SGEMM.removesuffix("_align1")),
        (SILU, "at::native::vectorized_elementwise_kernel<silu_kernel>"),
        (TIMES, "at::native::vectorized_elementwise_kernel<MulFunctor>"),
        (DEMANGLED, "at::native::vectorized_elementwise_kernel<MulFunctor>"),
        (MEAN, "at::native::reduce_kernel<MeanOps>"),
        ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<A<B>, C> >(P)", "cutlass::device_kernel"),
    ],
)
def test_generic_kernel_of_a_library_is_shown_by_what_it_was_made_for(name: str, expected: str) -> None:
    assert shown(name) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("void silu<4>(float const*, float*, long)", "silu<(int)4>(const float *, float *, long)"),
        ("void f<true, 3ul>(int)", "void f<(bool)1, (unsigned long)3>(int)"),
        ("void (anonymous namespace)::f(int)", "<unnamed>::f(int)"),
        ("void g<a::{lambda(float)#2}>(int)", "void g<a::[lambda(float) (instance 2)]>(int)"),
    ],
)
def test_two_demanglers_spelling_of_one_kernel_is_the_same_signature(one: str, other: str) -> None:
    assert signature(one) == signature(other)


def test_instances_of_one_template_are_different_kernels() -> None:
    assert signature("void f<4>(int)") != signature("void f<8>(int)")
