#include "torch_kernels/replace.h"

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace ptpathways {
namespace {

// Whether the linker has made the page that holds `address` read-only after it wrote there.
bool IsSealed(uintptr_t address, uintptr_t page_bytes) {
  struct Search {
    uintptr_t address;
    uintptr_t page_bytes;
    bool found = false;
  } search{address, page_bytes};
  dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* data) {
        auto& search = *static_cast<Search*>(data);
        for (int place = 0; place < library->dlpi_phnum; ++place) {
          const ElfW(Phdr) & part = library->dlpi_phdr[place];
          if (part.p_type != PT_GNU_RELRO) continue;
          const uintptr_t start = library->dlpi_addr + part.p_vaddr;
          const uintptr_t end = (start + part.p_memsz) & ~(search.page_bytes - 1);  // the rest of its page is left
          search.found = search.found || (start <= search.address && search.address < end);
        }
        return search.found ? 1 : 0;
      },
      &search);
  return search.found;
}

}  // namespace

bool Replace(void** entry, void* function) {
  const auto address = reinterpret_cast<uintptr_t>(entry);
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  void* page = reinterpret_cast<void*>(address & ~(page_bytes - 1));
  const bool sealed = IsSealed(address, page_bytes);
  if (sealed && mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return false;
  __atomic_store_n(entry, function, __ATOMIC_RELEASE);
  if (sealed) mprotect(page, page_bytes, PROT_READ);  // else it stays writable, and the entry is right
  return true;
}

}  // namespace ptpathways
