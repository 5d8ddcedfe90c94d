# The built-in hardware profiles, lrmoe/cost/profiles/*.toml, as a table of texts in a
# source file, so that the program looks for no file when it runs.
function(lrmoe_write_profiles OUTPUT)
  file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/lrmoe/cost/profiles/*.toml")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
  set(text "#include \"lrmoe/cost/profile_toml.h\"\n\nnamespace lrmoe::cost {\n\n")
  string(APPEND text "std::vector<ProfileText> built_in_profiles() {\n  return {\n")
  foreach(file IN LISTS files)
    get_filename_component(name "${file}" NAME_WLE)
    file(READ "${file}" toml)
    string(APPEND text "      {\"${name}\", R\"toml(${toml})toml\"},\n")
  endforeach()
  string(APPEND text "  };\n}\n\n}  // namespace lrmoe::cost\n")
  file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "${text}" @ONLY)  # only where it changed
endfunction()
