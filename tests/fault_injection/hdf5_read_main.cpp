// SPDX-License-Identifier: Apache-2.0
// Reads saved states with the HDF5 library alone, as h5py would: hdf5_read DIRECTORY STEP [PATH]. Every value of every
// tensor is the one of the step, else it says which is not. With PATH, the elements of that data set go to stdout.

#include <hdf5.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/fault_injection/test_state.hpp"

namespace {

using namespace tessera;
namespace fs = std::filesystem;

/// The values of a data set; none: no file of the directory has it.
std::vector<float> values_of(const std::string& directory, const std::string& path) {
  std::vector<float> values;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() != ".h5") continue;
    const hid_t file = H5Fopen(entry.path().c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    const hid_t dataset = file < 0 ? -1 : H5Dopen2(file, path.c_str(), H5P_DEFAULT);
    if (dataset >= 0) {
      const hid_t space = H5Dget_space(dataset);
      values.resize(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
      if (H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0) values.clear();
      H5Sclose(space);
      H5Dclose(dataset);
    }
    if (file >= 0) H5Fclose(file);
  }
  return values;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // a tensor is in one of the files
  const std::string directory = argv[1];
  if (argc > 3) {
    const std::vector<float> values = values_of(directory, argv[3]);
    return values.empty() || std::fwrite(values.data(), sizeof(float), values.size(), stdout) != values.size();
  }
  const test::TestTensors tensors = test::small_tensors();
  const char* const groups[] = {"/model/", "/optimizer/exp_avg/", "/optimizer/exp_avg_sq/"};
  for (int vector = 0; vector < 3; ++vector)
    for (std::size_t p = 0; p < tensors.params.size(); ++p) {
      const std::string path = groups[vector] + tensors.params[p].name;
      const std::vector<float> values = values_of(directory, path);
      bool good = static_cast<std::int64_t>(values.size()) == tensors.params[p].numel();
      for (std::size_t i = 0; i < values.size() && good; ++i)
        good = values[i] ==
               test::test_value(std::atoll(argv[2]), vector, static_cast<int>(p), static_cast<std::int64_t>(i));
      if (!good) {
        std::printf("%s: H5Dread has %zu values, not those of step %s\n", path.c_str(), values.size(), argv[2]);
        return 1;
      }
      std::printf("%s\n", path.c_str());
    }
  return 0;
}
