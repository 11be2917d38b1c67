// kernels/moments_binding.cpp
#include "binding.h"

extern "C" int row_moments(float* out, const float* x, int64_t rows, int64_t columns, void* stream);

static Tensor moments(const Tensor& x_any) {
  CUDA_TUI_CHECK(x_any.dim() == 2 && x_any.scalar_type() == ScalarType::Float, "x must be (rows, columns) in float32");
  const DeviceGuard guard(x_any.get_device_index());
  const Tensor x = torch::stable::contiguous(x_any);
  const Tensor out = torch::stable::new_empty(x, {x.size(0), 2});
  check_launch(row_moments(cuda_tui::output<float>(out), cuda_tui::input<float>(x), x.size(0), x.size(1),
                           cuda_tui::current_stream(x)),
               "moments");
  return out;
}

CUDA_TUI_OPS(m) { m.def("moments(Tensor x) -> Tensor"); }
CUDA_TUI_IMPL(CUDA, m) { m.impl("moments", TORCH_BOX(&moments)); }
