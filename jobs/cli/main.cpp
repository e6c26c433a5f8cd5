// The program `tessera`.
#include <unistd.h>

#include "jobs/cli/program.hpp"

int main(int argc, char** argv) { return tessera::jobs::run_program({argv + 1, argv + argc}, ::environ); }
