// kernels/sums_binding.cpp
#include "binding.h"

extern "C" int sums_blocks(int64_t n);
extern "C" int squared_error_mean(void* out, float* partial, const void* x, const void* y, int kind, int64_t n, int blocks,
                                  void* stream);
extern "C" int column_sum_slabs(int64_t rows, int columns, int elements);
extern "C" int column_sum_rows(void* out, float* partial, const void* x, int kind, int64_t rows, int columns, int slabs,
                               void* stream);

static Tensor mse_loss(const Tensor& x_any, const Tensor& y_any) {
  const int kind = element_kind(x_any, "x");
  check_like(y_any, x_any, "y");
  CUDA_TUI_CHECK(x_any.numel() == y_any.numel() && x_any.numel() > 0, "x and y must have the same shape, not empty");
  const DeviceGuard guard(x_any.get_device_index());
  const Tensor x = torch::stable::contiguous(x_any), y = torch::stable::contiguous(y_any);
  const int blocks = sums_blocks(x.numel());
  const Tensor partial = torch::stable::new_empty(x, {blocks}, ScalarType::Float), out = torch::stable::new_empty(x, {});
  check_launch(squared_error_mean(cuda_tui::output<void>(out), cuda_tui::output<float>(partial), cuda_tui::input<void>(x),
                                  cuda_tui::input<void>(y), kind, x.numel(), blocks, cuda_tui::current_stream(x)),
               "mse_loss");
  return out;
}

static Tensor column_sum(const Tensor& x_any) {
  CUDA_TUI_CHECK(x_any.dim() == 2, "x must be (rows, columns)");
  const int kind = element_kind(x_any, "x");
  const DeviceGuard guard(x_any.get_device_index());
  const Tensor x = torch::stable::contiguous(x_any);
  const int64_t rows = x.size(0), columns = x.size(1);
  CUDA_TUI_CHECK(columns > 0 && columns <= 0x7fffffff, "x must have 1 to 2^31 - 1 columns");
  const int slabs = column_sum_slabs(rows, static_cast<int>(columns), kind == 0 ? 4 : 8);
  const Tensor partial = torch::stable::new_empty(x, {slabs, columns}, ScalarType::Float);
  const Tensor out = torch::stable::new_empty(x, {columns});
  check_launch(column_sum_rows(cuda_tui::output<void>(out), cuda_tui::output<float>(partial), cuda_tui::input<void>(x), kind,
                               rows, static_cast<int>(columns), slabs, cuda_tui::current_stream(x)),
               "column_sum");
  return out;
}

CUDA_TUI_OPS(m) {
  m.def("mse_loss(Tensor x, Tensor y) -> Tensor");
  m.def("column_sum(Tensor x) -> Tensor");
}
CUDA_TUI_IMPL(CUDA, m) {
  m.impl("mse_loss", TORCH_BOX(&mse_loss));
  m.impl("column_sum", TORCH_BOX(&column_sum));
}
