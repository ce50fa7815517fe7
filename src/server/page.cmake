# SPDX-License-Identifier: Apache-2.0
#
# The chat page's files as arrays of C. Included, it says how PLEACH_PAGE_SOURCE is made: by this
# same file, run as a script with OUT and FOLDER.

if(NOT CMAKE_SCRIPT_MODE_FILE)
    set(PLEACH_PAGE_SOURCE ${CMAKE_BINARY_DIR}/page_files.c)
    file(GLOB PAGE_FILES CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/page/*)
    add_custom_command(OUTPUT ${PLEACH_PAGE_SOURCE}
                       COMMAND ${CMAKE_COMMAND} -D OUT=${PLEACH_PAGE_SOURCE}
                               -D FOLDER=${CMAKE_CURRENT_LIST_DIR}/page
                               -P ${CMAKE_CURRENT_LIST_FILE}
                       DEPENDS ${PAGE_FILES} ${CMAKE_CURRENT_LIST_FILE} VERBATIM)
    return()
endif()

set(TYPE_.html "text/html; charset=utf-8")
set(TYPE_.css "text/css; charset=utf-8")
set(TYPE_.js "text/javascript; charset=utf-8")
set(TYPE_.svg "image/svg+xml")

file(GLOB files ${FOLDER}/*)
foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME)
    get_filename_component(extension ${file} LAST_EXT)
    if(NOT DEFINED TYPE_${extension})
        message(FATAL_ERROR "${file}: no content type is known for ${extension}")
    endif()
    string(MAKE_C_IDENTIFIER ${name} symbol)
    file(READ ${file} hex HEX)
    file(SHA256 ${file} hash)
    string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
    string(APPEND arrays "static const unsigned char ${symbol}[] = {\n${hex}\n};\n\n")
    string(APPEND entries "    {\"/${name}\", \"${TYPE_${extension}}\",\n"
                          "     \"\\\"${hash}\\\"\",\n"
                          "     ${symbol}, sizeof ${symbol}},\n")
endforeach()
file(WRITE ${OUT} "/* Made of src/server/page by src/server/page.cmake. */\n"
                  "#include \"server/page.h\"\n\n${arrays}"
                  "const pl_page_file pl_page_files[] = {\n${entries}"
                  "    {NULL, NULL, NULL, NULL, 0},\n};\n")
