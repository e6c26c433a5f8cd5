# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` installs: libraries, headers under include/tessera with the paths they have here, the config
# package and the pkg-config file. The program and its pages are a component of their own, `program`.
include(CMakePackageConfigHelpers)

set(layers base kernels comm shard models io plan exec infer train)
list(TRANSFORM layers PREPEND tessera_ OUTPUT_VARIABLE layer_targets)
set_target_properties(tessera_flags PROPERTIES EXPORT_NAME flags)
install(TARGETS tessera_flags ${layer_targets} EXPORT TesseraTargets)
if(TARGET tessera)
  install(TARGETS tessera COMPONENT program)
  install(FILES ${CMAKE_BINARY_DIR}/jobs/pages/tessera.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
    COMPONENT program OPTIONAL)
  install(FILES ${CMAKE_BINARY_DIR}/jobs/pages/tessera DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
    COMPONENT program OPTIONAL)
  install(FILES ${CMAKE_BINARY_DIR}/jobs/pages/_tessera DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions
    COMPONENT program OPTIONAL)
  install(FILES ${CMAKE_BINARY_DIR}/jobs/pages/tessera.fish DESTINATION
    ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d
    COMPONENT program OPTIONAL)
endif()
foreach(folder runtime kernels models io)
  install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera FILES_MATCHING PATTERN "*.hpp"
    PATTERN "package" EXCLUDE)
endforeach()
install(DIRECTORY jobs/templates DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera)
set(documents ${CMAKE_INSTALL_DATADIR}/doc/tessera)  # with the paths that links between pages have
install(FILES LICENSE README.md jobs/packaging/copyright DESTINATION ${documents})
install(DIRECTORY docs DESTINATION ${documents})
install(DIRECTORY jobs/examples jobs/templates DESTINATION ${documents}/jobs)
install(DIRECTORY tests/external DESTINATION ${documents}/tests)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)
install(EXPORT TesseraTargets NAMESPACE Tessera:: DESTINATION ${package_dir})
configure_package_config_file(jobs/packaging/TesseraConfig.cmake.in ${CMAKE_BINARY_DIR}/TesseraConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/TesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/TesseraConfig.cmake ${CMAKE_BINARY_DIR}/TesseraConfigVersion.cmake DESTINATION
  ${package_dir})

# A static link line names a layer before the layers below it.
set(layers_top_down ${layers})
list(REVERSE layers_top_down)
list(TRANSFORM layers_top_down PREPEND "-ltessera_")
list(JOIN layers_top_down " " TESSERA_PC_LIBS)
# Public definitions: headers read them.
set(TESSERA_PC_DEFINES "")
# What static archives need beyond the modules of Requires.private: the MPI found here, whichever it is, and the
# runtimes.
set(TESSERA_PC_PRIVATE ${MPI_C_LIBRARIES} ${CMAKE_DL_LIBS} pthread stdc++ m)
if(TESSERA_ONEDNN)
  list(PREPEND TESSERA_PC_PRIVATE dnnl)
endif()
if(TESSERA_OPENMP)
  list(APPEND TESSERA_PC_PRIVATE ${OpenMP_CXX_LIBRARIES})
endif()
if(tessera_cuda)
  string(APPEND TESSERA_PC_DEFINES " -DTESSERA_CUDA_BUILT")
  list(APPEND TESSERA_PC_PRIVATE ${CUDA_cudart_static_LIBRARY} rt)
endif()
if(tessera_nccl)
  string(APPEND TESSERA_PC_DEFINES " -DTESSERA_NCCL_BUILT")
endif()
list(TRANSFORM TESSERA_PC_PRIVATE REPLACE "^([a-z+]+)$" "-l\\1")
list(JOIN TESSERA_PC_PRIVATE " " TESSERA_PC_PRIVATE)
configure_file(jobs/packaging/tessera.pc.in ${CMAKE_BINARY_DIR}/tessera.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/tessera.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
