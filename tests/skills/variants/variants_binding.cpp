// kernels/variants_binding.cpp
#include "binding.h"

extern "C" int variant_silu_mul(float* out, const float* gate, const float* up, int64_t n, void* stream);
extern "C" int variant_scale_shift(float* out, const float* x, const float* scale, const float* shift, int64_t n,
                                   int64_t inner, int64_t channels, void* stream);
extern "C" int variant_rms_norm(float* out, const float* x, const float* weight, float eps, int64_t rows, int columns,
                                int wide, int threads, void* stream);
extern "C" int variant_column_sum(float* out, const float* x, int64_t rows, int columns, void* stream);
extern "C" int variant_mse(float* out, const float* x, const float* y, int64_t n, void* stream);
extern "C" int variant_transpose_add(float* out, const float* x, const float* bias, int rows, int columns, int tiled, void* stream);
extern "C" int variant_form(float* out, const float* x, int64_t n, int form, void* stream);
extern "C" int variant_variance(float* out, const float* x, int64_t rows, int columns, int form, void* stream);

// Inputs are the harness's own: contiguous float32, so nothing is checked here.
static const float* in(const Tensor& tensor) { return cuda_tui::input<float>(tensor); }
static float* target(const Tensor& tensor) { return cuda_tui::output<float>(tensor); }

static Tensor silu_mul(const Tensor& gate, const Tensor& up) {
  const Tensor out = torch::stable::empty_like(gate);
  check_launch(variant_silu_mul(target(out), in(gate), in(up), gate.numel(), cuda_tui::current_stream(gate)), "silu_mul");
  return out;
}
static Tensor scale_shift(const Tensor& x, const Tensor& scale, const Tensor& shift) {
  const Tensor out = torch::stable::empty_like(x);
  const int64_t channels = x.size(1), inner = x.numel() / (x.size(0) * channels);
  check_launch(variant_scale_shift(target(out), in(x), in(scale), in(shift), x.numel(), inner, channels, cuda_tui::current_stream(x)), "scale_shift");
  return out;
}
static Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, bool wide, int64_t threads) {
  const Tensor out = torch::stable::empty_like(x);
  check_launch(variant_rms_norm(target(out), in(x), in(weight), static_cast<float>(eps), x.size(0), static_cast<int>(x.size(1)), wide,
                                static_cast<int>(threads), cuda_tui::current_stream(x)), "rms_norm");
  return out;
}
static Tensor column_sum(const Tensor& x) {
  const Tensor out = torch::stable::new_empty(x, {x.size(1)});
  check_launch(variant_column_sum(target(out), in(x), x.size(0), static_cast<int>(x.size(1)), cuda_tui::current_stream(x)), "column_sum");
  return out;
}
static Tensor mse(const Tensor& x, const Tensor& y) {
  const Tensor out = torch::stable::new_zeros(x, {1});
  check_launch(variant_mse(target(out), in(x), in(y), x.numel(), cuda_tui::current_stream(x)), "mse");
  return out;
}
static Tensor transpose_add(const Tensor& x, const Tensor& bias, bool tiled) {
  const Tensor out = torch::stable::new_empty(x, {x.size(1), x.size(0)});
  check_launch(variant_transpose_add(target(out), in(x), in(bias), static_cast<int>(x.size(0)), static_cast<int>(x.size(1)), tiled,
                                     cuda_tui::current_stream(x)), "transpose_add");
  return out;
}
static Tensor form(const Tensor& x, int64_t which) {
  const Tensor out = torch::stable::empty_like(x);
  check_launch(variant_form(target(out), in(x), x.numel(), static_cast<int>(which), cuda_tui::current_stream(x)), "form");
  return out;
}
static Tensor variance(const Tensor& x, int64_t which) {
  const Tensor out = torch::stable::new_empty(x, {x.size(0)});
  check_launch(variant_variance(target(out), in(x), x.size(0), static_cast<int>(x.size(1)), static_cast<int>(which),
                                cuda_tui::current_stream(x)), "variance");
  return out;
}

CUDA_TUI_OPS(m) {
  m.def("variant_silu_mul(Tensor gate, Tensor up) -> Tensor");
  m.def("variant_scale_shift(Tensor x, Tensor scale, Tensor shift) -> Tensor");
  m.def("variant_rms_norm(Tensor x, Tensor weight, float eps, bool wide, int threads) -> Tensor");
  m.def("variant_column_sum(Tensor x) -> Tensor");
  m.def("variant_mse(Tensor x, Tensor y) -> Tensor");
  m.def("variant_transpose_add(Tensor x, Tensor bias, bool tiled) -> Tensor");
  m.def("variant_form(Tensor x, int which) -> Tensor");
  m.def("variant_variance(Tensor x, int which) -> Tensor");
}
CUDA_TUI_IMPL(CUDA, m) {
  m.impl("variant_silu_mul", TORCH_BOX(&silu_mul));
  m.impl("variant_scale_shift", TORCH_BOX(&scale_shift));
  m.impl("variant_rms_norm", TORCH_BOX(&rms_norm));
  m.impl("variant_column_sum", TORCH_BOX(&column_sum));
  m.impl("variant_mse", TORCH_BOX(&mse));
  m.impl("variant_transpose_add", TORCH_BOX(&transpose_add));
  m.impl("variant_form", TORCH_BOX(&form));
  m.impl("variant_variance", TORCH_BOX(&variance));
}
