// kernels/mma_linear_binding.cpp
#include "binding.h"

extern "C" int mma_linear_gelu(void* out, const void* x, const void* w, const void* bias, int m, int n, int k, void* stream);

static Tensor linear_gelu(const Tensor& x_any, const Tensor& w_any, const Tensor& bias) {
  CUDA_TUI_CHECK(x_any.scalar_type() == ScalarType::BFloat16, "x must be bfloat16");
  check_like(w_any, x_any, "w");
  check_like(bias, x_any, "bias");
  CUDA_TUI_CHECK(x_any.dim() == 2 && w_any.dim() == 2 && x_any.size(1) == w_any.size(1), "x must be (m, k), w (n, k)");
  const DeviceGuard guard(x_any.get_device_index());
  const Tensor x = torch::stable::contiguous(x_any), w = torch::stable::contiguous(w_any);
  const int64_t m = x.size(0), n = w.size(0), k = x.size(1);
  CUDA_TUI_CHECK(n % 8 == 0 && k % 8 == 0 && m <= 0x7fffff && n <= 0x7fffff, "n and k must be multiples of 8");
  CUDA_TUI_CHECK(bias.is_contiguous() && bias.numel() == n, "bias must be contiguous, one an output column");
  const Tensor out = torch::stable::new_empty(x, {m, n});
  check_launch(mma_linear_gelu(cuda_tui::output<void>(out), cuda_tui::input<void>(x), cuda_tui::input<void>(w),
                      cuda_tui::input<void>(bias), static_cast<int>(m), static_cast<int>(n), static_cast<int>(k),
                      cuda_tui::current_stream(x)),
               "linear_gelu");
  return out;
}

CUDA_TUI_OPS(m) { m.def("mma_linear_gelu(Tensor x, Tensor w, Tensor bias) -> Tensor"); }
CUDA_TUI_IMPL(CUDA, m) { m.impl("mma_linear_gelu", TORCH_BOX(&linear_gelu)); }
