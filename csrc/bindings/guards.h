// Guards: whether Python's dictionaries still hold what they held, asked at every replay of a captured step.
//
// A step can reach thousands of things by hundreds of dictionaries, nearly all of which nobody touches between two
// calls. CPython 3.11 counts the changes of each dictionary, so one comparison a dictionary is enough until it changes;
// later versions keep no such count, and every entry is looked at.
//
// Ownership: borrows every object; whoever makes guards keeps alive what they are about (a reference from here would be
//            one that Python's garbage collector cannot see). Threads: the GIL's.
#ifndef PTPATHWAYS_BINDINGS_GUARDS_H_
#define PTPATHWAYS_BINDINGS_GUARDS_H_

#include <pybind11/pybind11.h>

namespace pathways::bindings {

void BindGuards(pybind11::module_& module);

}  // namespace pathways::bindings

#endif  // PTPATHWAYS_BINDINGS_GUARDS_H_
