// kernels/cross_entropy_binding.cpp
#include "binding.h"

extern "C" int cross_entropy_rows(float* loss, const void* logits, const int64_t* target, int kind, int64_t ignored,
                                  int64_t rows, int columns, void* stream);

// One loss a row, in float32. The mean: sum of it over the count of targets that are not ignored.
static Tensor cross_entropy(const Tensor& logits_any, const Tensor& target_any, int64_t ignored) {
  CUDA_TUI_CHECK(logits_any.dim() == 2 && target_any.dim() == 1, "logits must be (rows, classes), target (rows)");
  CUDA_TUI_CHECK(target_any.scalar_type() == ScalarType::Long, "target must be int64");
  CUDA_TUI_CHECK(target_any.size(0) == logits_any.size(0), "one target a row");
  const int kind = element_kind(logits_any, "logits");
  const DeviceGuard guard(logits_any.get_device_index());
  const Tensor logits = torch::stable::contiguous(logits_any), target = torch::stable::contiguous(target_any);
  const int64_t rows = logits.size(0), columns = logits.size(1);
  CUDA_TUI_CHECK(columns <= 0x7fffffff && rows <= 0x7fffffff, "too many rows or columns");
  const Tensor loss = torch::stable::new_empty(logits, {rows}, ScalarType::Float);
  check_launch(cross_entropy_rows(cuda_tui::output<float>(loss), cuda_tui::input<void>(logits),
                                  cuda_tui::input<int64_t>(target), kind, ignored, rows, static_cast<int>(columns),
                                  cuda_tui::current_stream(logits)),
               "cross_entropy");
  return loss;
}

CUDA_TUI_OPS(m) { m.def("cross_entropy(Tensor logits, Tensor target, int ignored=-100) -> Tensor"); }
CUDA_TUI_IMPL(CUDA, m) { m.impl("cross_entropy", TORCH_BOX(&cross_entropy)); }
