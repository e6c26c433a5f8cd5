# What `cmake --install` puts where: libraries, headers under include/tessera with their paths, config package, pkg-config file.
include(CMakePackageConfigHelpers)

set(layers base kernels comm shard models io plan train infer)
list(TRANSFORM layers PREPEND tessera_ OUTPUT_VARIABLE layer_targets)
set_target_properties(tessera_flags PROPERTIES EXPORT_NAME flags)
install(TARGETS tessera_flags ${layer_targets} EXPORT TesseraTargets)
if(TARGET tessera)
  install(TARGETS tessera)
  install(FILES ${CMAKE_BINARY_DIR}/jobs/pages/tessera.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
  install(FILES ${CMAKE_BINARY_DIR}/jobs/pages/tessera DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions OPTIONAL)
  install(FILES ${CMAKE_BINARY_DIR}/jobs/pages/_tessera DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions OPTIONAL)
  install(FILES ${CMAKE_BINARY_DIR}/jobs/pages/tessera.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d OPTIONAL)
endif()
foreach(folder runtime kernels models io)
  install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera FILES_MATCHING PATTERN "*.hpp"
    PATTERN "package" EXCLUDE)
endforeach()
install(DIRECTORY jobs/templates DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)
install(EXPORT TesseraTargets NAMESPACE Tessera:: DESTINATION ${package_dir})
configure_package_config_file(runtime/package/TesseraConfig.cmake.in ${CMAKE_BINARY_DIR}/TesseraConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/TesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/TesseraConfig.cmake ${CMAKE_BINARY_DIR}/TesseraConfigVersion.cmake DESTINATION ${package_dir})

# A static link line names a layer before the layers below it.
set(layers_top_down ${layers})
list(REVERSE layers_top_down)
list(TRANSFORM layers_top_down PREPEND "-ltessera_")
list(JOIN layers_top_down " " TESSERA_PC_LIBS)
set(TESSERA_PC_DEFINES "")
if(tessera_cuda)  # what headers of ours say, they say to every user alike
  string(APPEND TESSERA_PC_DEFINES " -DTESSERA_CUDA_BUILT")
endif()
if(tessera_nccl)
  string(APPEND TESSERA_PC_DEFINES " -DTESSERA_NCCL_BUILT")
endif()
configure_file(runtime/package/tessera.pc.in ${CMAKE_BINARY_DIR}/tessera.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/tessera.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
