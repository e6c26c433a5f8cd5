// SPDX-License-Identifier: Apache-2.0
// Every collective under mpirun: comm_ranks TRANSPORT RANKS_PER_NODE LARGEST. Exits 0 if all are right, else names the
// first difference.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "checks.hpp"
#include "runtime/base/log.hpp"

int main(int argc, char** argv) {
  using namespace tessera;
  if (argc != 4) return 2;
  try {
    WorldOptions options;
    options.comm = std::strcmp(argv[1], "mpi") == 0    ? WorldOptions::Comm::mpi
                   : std::strcmp(argv[1], "node") == 0 ? WorldOptions::Comm::node
                                                       : WorldOptions::Comm::automatic;
    options.ranks_per_node = std::atoi(argv[2]);
    options.comm_timeout_s = 60;
    auto world = bootstrap(options);
    try {
      test::check_world(*world);
      test::check_collectives(*world, static_cast<std::size_t>(std::atoll(argv[3])));
    } catch (const Error& error) { world->abort(error); } catch (const std::exception& error) {
      world->abort(Error(ExitCode::internal, error.what()));
    }
    log::info(strfmt("%d ranks, %s, %d to a node: all as it should be", world->size(),
                     name_of(world->topology().transport), world->topology().ranks_per_node));
  } catch (const Error& error) {
    log::error(error.line());
    return static_cast<int>(error.code());
  }
  return 0;
}
