# Fails when an archive of instruction-set kernels defines weak symbols: the linker may pick such a
# symbol for the whole program, and code for AVX would then run on processors without it.
#   cmake -DNM=nm -DARCHIVES=a.a;b.a -P isa_symbols.cmake
foreach(archive IN LISTS ARCHIVES)
  execute_process(COMMAND "${NM}" -C "${archive}" OUTPUT_VARIABLE symbols RESULT_VARIABLE result)
  if(NOT result EQUAL 0 OR NOT symbols MATCHES " T hearth::avx")
    message(FATAL_ERROR "${archive}: nm finds no kernels in it")
  endif()
  string(REGEX MATCHALL "[^\n]* [WVu] [^\n]*" weak "${symbols}")
  if(weak)
    list(JOIN weak "\n" weak)
    message(FATAL_ERROR "${archive} defines weak symbols:\n${weak}")
  endif()
endforeach()
