# Installs the C++ client. Afterwards, users can call find_package(convgrad) and link
# the target convgrad::client.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(parts convolution core operators optimizer program messages wire codec client_calls
    client_operations client_sessions client)
set(headers ${CMAKE_INSTALL_INCLUDEDIR}/convgrad)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/convgrad)

foreach(part IN LISTS parts)
  set_target_properties(convgrad_${part} PROPERTIES EXPORT_NAME ${part})
  if(NOT part STREQUAL "client")
    target_include_directories(convgrad_${part} PUBLIC $<INSTALL_INTERFACE:${headers}>)
  endif()
  install(TARGETS convgrad_${part} EXPORT convgrad
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT client)
endforeach()
foreach(folder backends/core client/cpp proto)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder}/ COMPONENT client
          DESTINATION ${headers}/${folder} FILES_MATCHING PATTERN "*.h"
          PATTERN command_line EXCLUDE PATTERN examples EXCLUDE)
endforeach()
install(DIRECTORY ${PROJECT_BINARY_DIR}/proto/convgrad COMPONENT client
        DESTINATION ${headers} FILES_MATCHING PATTERN "*.pb.h")
install(EXPORT convgrad NAMESPACE convgrad:: DESTINATION ${package}
        FILE convgradTargets.cmake COMPONENT client)
configure_package_config_file(
  ${CMAKE_CURRENT_SOURCE_DIR}/convgradConfig.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/convgradConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(
  ${CMAKE_CURRENT_BINARY_DIR}/convgradConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/convgradConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/convgradConfigVersion.cmake
        DESTINATION ${package} COMPONENT client)
