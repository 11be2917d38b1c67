// Registers operators with PyTorch through its stable C++ ABI, and offers the few helpers that bindings need.
//
//   #include "cuda_tui.h"
//   using torch::stable::Tensor;
//   static Tensor scale(const Tensor& x, double factor) { ... }
//   CUDA_TUI_OPS(m) { m.def("scale(Tensor x, float factor) -> Tensor"); }
//   CUDA_TUI_IMPL(CPU, m) { m.impl("scale", TORCH_BOX(&scale)); }
//
// and in Python: `import cuda_extension; cuda_extension.scale(x, 2.0)`.
//
// The operator namespace carries the build's identity, because registering one operator twice ends a process. It is
// known only to a generated file that is linked last, so an edited kernel never recompiles an unchanged binding.
// Schema types in C++: Tensor = torch::stable::Tensor, float = double, int = int64_t, bool = bool,
// Tensor? = std::optional<Tensor>, (Tensor, Tensor) = std::tuple<Tensor, Tensor>, int[] = std::vector<int64_t>.
// This file is protected: it belongs to the workspace's contract and is not edited.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "cuda_tui_math.h"

namespace cuda_tui {

// One block of CUDA_TUI_OPS or CUDA_TUI_IMPL. Blocks form a list while the library loads; the generated file walks it.
struct Registration {
  void (*run)(const char* name_space);
  bool defines;  // schemas are registered before implementations
  Registration* next;
};
extern "C" __attribute__((visibility("hidden"))) Registration* cuda_tui_registrations;

struct Registrar {
  Registration entry;
  Registrar(void (*run)(const char*), bool defines) : entry{run, defines, cuda_tui_registrations} {
    cuda_tui_registrations = &entry;
  }
};

// The library object is never destroyed: PyTorch may already be gone when the process's static objects end.
using torch::stable::detail::StableLibrary;
inline void run(StableLibrary::Kind kind, const char* name_space, const char* key, void (*body)(StableLibrary&)) {
  body(*new StableLibrary(kind, name_space, key, "cuda_extension", 0));
}

// Raises a Python exception that names what was wrong: CUDA_TUI_CHECK(x.is_contiguous(), "x must be contiguous").
#define CUDA_TUI_CHECK(...) STD_TORCH_CHECK(__VA_ARGS__)

// A view's elements; the caller has checked dtype and contiguity.
template <typename T>
inline const T* input(const torch::stable::Tensor& tensor) {
  return static_cast<const T*>(tensor.data_ptr());
}
template <typename T>
inline T* output(const torch::stable::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

#ifdef USE_CUDA
// The stream that PyTorch uses now on the tensor's device, as a cudaStream_t.
inline void* current_stream(const torch::stable::Tensor& tensor) {
  void* stream = nullptr;
  const auto code = aoti_torch_get_current_cuda_stream(tensor.get_device(), &stream);
  STD_TORCH_CHECK(code == AOTI_TORCH_SUCCESS, "no current CUDA stream");
  return stream;
}
#endif

}  // namespace cuda_tui

#define CUDA_TUI_JOIN_(a, b) a##b
#define CUDA_TUI_JOIN(a, b) CUDA_TUI_JOIN_(a, b)
#define CUDA_TUI_BLOCK(uid, kind, key, defines, m)                                                            \
  static void CUDA_TUI_JOIN(cuda_tui_body_, uid)(torch::stable::detail::StableLibrary&);                      \
  static ::cuda_tui::Registrar CUDA_TUI_JOIN(cuda_tui_registrar_, uid)(                                       \
      [](const char* name_space) {                                                                            \
        ::cuda_tui::run(torch::stable::detail::StableLibrary::Kind::kind, name_space, key,                    \
                        &CUDA_TUI_JOIN(cuda_tui_body_, uid));                                                 \
      },                                                                                                      \
      defines);                                                                                               \
  static void CUDA_TUI_JOIN(cuda_tui_body_, uid)(torch::stable::detail::StableLibrary & m)

// Schemas. Several blocks, in several files, are fine.
#define CUDA_TUI_OPS(m) CUDA_TUI_BLOCK(__COUNTER__, FRAGMENT, nullptr, true, m)
// Implementations for one dispatch key: CPU, CUDA, CompositeExplicitAutograd.
#define CUDA_TUI_IMPL(dispatch_key, m) CUDA_TUI_BLOCK(__COUNTER__, IMPL, #dispatch_key, false, m)
