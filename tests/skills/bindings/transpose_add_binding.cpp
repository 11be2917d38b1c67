// kernels/transpose_add_binding.cpp
#include "binding.h"

extern "C" int transpose_add_f32(float* out, const float* x, const float* bias, int rows, int columns, void* stream);

static Tensor transpose_add(const Tensor& x_any, const Tensor& bias) {
  CUDA_TUI_CHECK(x_any.dim() == 2 && x_any.scalar_type() == ScalarType::Float, "x must be (rows, columns) in float32");
  check_like(bias, x_any, "bias");
  const DeviceGuard guard(x_any.get_device_index());
  const Tensor x = torch::stable::contiguous(x_any);
  const int64_t rows = x.size(0), columns = x.size(1);
  CUDA_TUI_CHECK(rows <= 0x7fffffff && columns <= 0x7fffffff, "too many rows or columns");
  CUDA_TUI_CHECK(bias.is_contiguous() && bias.numel() == columns, "bias must be contiguous, one a column");
  const Tensor out = torch::stable::new_empty(x, {columns, rows});
  check_launch(transpose_add_f32(cuda_tui::output<float>(out), cuda_tui::input<float>(x), cuda_tui::input<float>(bias),
                                 static_cast<int>(rows), static_cast<int>(columns), cuda_tui::current_stream(x)),
               "transpose_add");
  return out;
}

CUDA_TUI_OPS(m) { m.def("transpose_add(Tensor x, Tensor bias) -> Tensor"); }
CUDA_TUI_IMPL(CUDA, m) { m.impl("transpose_add", TORCH_BOX(&transpose_add)); }
