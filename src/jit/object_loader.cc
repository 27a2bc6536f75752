#include "jit/object_loader.h"

#include <cstring>
#include <map>
#include <vector>

#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

namespace millstream::jit {

struct LoadedObject::Symbols {
  std::map<std::string, const void*, std::less<>> by_name;
};

namespace {

/// The part [offset, offset + bytes) of a file as an array of T; null where the file is shorter.
template <class T>
const T* part(std::string_view file, uint64_t offset, uint64_t count) {
  if (offset > file.size() || count > (file.size() - offset) / sizeof(T)) return nullptr;
  return reinterpret_cast<const T*>(file.data() + offset);
}

std::string_view text_at(std::string_view file, const Elf64_Shdr& strings, uint64_t offset) {
  const char* all = part<char>(file, strings.sh_offset, strings.sh_size);
  if (!all || offset >= strings.sh_size) return {};
  return {all + offset, strnlen(all + offset, strings.sh_size - offset)};
}

/// A jump through a pointer that lies behind it, for functions farther away than a call reaches.
constexpr size_t kStubBytes = 16;
void write_stub(char* at, const void* target) {
  const unsigned char jump[] = {0xFF, 0x25, 0x02, 0x00, 0x00, 0x00, 0x90, 0x90};  // jmp [rip + 2]
  std::memcpy(at, jump, sizeof jump);
  std::memcpy(at + 8, &target, 8);
}

uint64_t aligned(uint64_t offset, uint64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

Status damaged() {
  return bug_error("an object of generated code can't be read");
}

}  // namespace

LoadedObject::~LoadedObject() {
  if (memory_) ::munmap(memory_, bytes_);
}

const void* LoadedObject::find(std::string_view name) const {
  const auto at = symbols_->by_name.find(name);
  return at == symbols_->by_name.end() ? nullptr : at->second;
}

Result<std::shared_ptr<const LoadedObject>> LoadedObject::load(std::string_view stored) {
#ifndef __x86_64__
  return bug_error("generated code can be loaded on x86-64 only");
#else
  // Aligned, whatever it was read from.
  std::vector<uint64_t> words((stored.size() + 7) / 8);
  std::memcpy(words.data(), stored.data(), stored.size());
  const std::string_view file(reinterpret_cast<const char*>(words.data()), stored.size());
  const auto* header = part<Elf64_Ehdr>(file, 0, 1);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_type != ET_REL ||
      header->e_machine != EM_X86_64)
    return damaged();
  const auto* sections = part<Elf64_Shdr>(file, header->e_shoff, header->e_shnum);
  if (!sections || header->e_shstrndx >= header->e_shnum) return damaged();

  // Code first, constants on pages of their own, which stay readable only.
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  std::vector<int64_t> places(header->e_shnum, -1);
  const Elf64_Shdr* symbol_section = nullptr;
  uint64_t end = 0, stub = 0, constants = 0, relocations = 0;
  for (const bool code : {true, false}) {
    for (int s = 0; s < header->e_shnum; ++s) {
      const Elf64_Shdr& section = sections[s];
      if (code && section.sh_type == SHT_SYMTAB) symbol_section = &section;
      if (code && section.sh_type == SHT_RELA) relocations += section.sh_size / sizeof(Elf64_Rela);
      const bool loaded = (section.sh_flags & SHF_ALLOC) && section.sh_type != SHT_X86_64_UNWIND &&
                          text_at(file, sections[header->e_shstrndx], section.sh_name) != ".eh_frame";
      if (!loaded || ((section.sh_flags & SHF_EXECINSTR) != 0) != code) continue;
      if (section.sh_addralign > page) return damaged();
      end = aligned(end, std::max<uint64_t>(section.sh_addralign, 1));
      places[static_cast<size_t>(s)] = static_cast<int64_t>(end);
      end += section.sh_size;
    }
    if (code) {  // stubs follow the code
      stub = aligned(end, kStubBytes);
      end = constants = aligned(stub + relocations * kStubBytes + 1, page);
    }
  }
  uint64_t pointers = aligned(end, 16);  // a table of addresses, for what is read through one
  const uint64_t bytes = aligned(pointers + relocations * 8 + 1, page);
  if (!symbol_section || symbol_section->sh_link >= header->e_shnum) return damaged();
  const uint64_t symbol_count = symbol_section->sh_size / sizeof(Elf64_Sym);
  const auto* symbols = part<Elf64_Sym>(file, symbol_section->sh_offset, symbol_count);
  if (!symbols) return damaged();

  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return failed_error("no memory for generated code: {}", std::strerror(errno));
  std::shared_ptr<LoadedObject> object(new LoadedObject);
  object->memory_ = memory;
  object->bytes_ = bytes;
  char* base = static_cast<char*>(memory);
  for (int s = 0; s < header->e_shnum; ++s) {
    if (places[static_cast<size_t>(s)] < 0 || sections[s].sh_type == SHT_NOBITS) continue;
    const char* content = part<char>(file, sections[s].sh_offset, sections[s].sh_size);
    if (!content) return damaged();
    std::memcpy(base + places[static_cast<size_t>(s)], content, sections[s].sh_size);
  }

  auto names = std::make_shared<Symbols>();
  std::vector<const char*> addresses(symbol_count, nullptr);
  const auto name_of = [&](uint64_t i) {
    return text_at(file, sections[symbol_section->sh_link], symbols[i].st_name);
  };
  for (uint64_t i = 0; i < symbol_count; ++i) {
    const Elf64_Sym& symbol = symbols[i];
    if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx >= header->e_shnum) continue;
    const int64_t place = places[symbol.st_shndx];
    if (place < 0) continue;
    addresses[i] = base + place + symbol.st_value;
    if (ELF64_ST_BIND(symbol.st_info) == STB_GLOBAL) names->by_name[std::string(name_of(i))] = addresses[i];
  }
  std::map<uint64_t, uint64_t> stubs, entries;  // of symbols
  for (int s = 0; s < header->e_shnum; ++s) {
    const Elf64_Shdr& section = sections[s];
    if (section.sh_type != SHT_RELA || section.sh_info >= header->e_shnum) continue;
    const int64_t place = places[section.sh_info];
    if (place < 0) continue;
    const uint64_t count = section.sh_size / sizeof(Elf64_Rela);
    const auto* list = part<Elf64_Rela>(file, section.sh_offset, count);
    if (!list) return damaged();
    for (uint64_t r = 0; r < count; ++r) {
      const uint64_t index = ELF64_R_SYM(list[r].r_info);
      const auto type = ELF64_R_TYPE(list[r].r_info);
      const uint64_t width = type == R_X86_64_64 ? 8 : 4;
      const uint64_t room = sections[section.sh_info].sh_size;
      if (index >= symbol_count || list[r].r_offset > room || room - list[r].r_offset < width)
        return damaged();
      const char* target = addresses[index];
      bool own = target != nullptr;
      if (!own) {
        const std::string name(name_of(index));
        target = static_cast<const char*>(::dlsym(RTLD_DEFAULT, name.c_str()));
        if (!target) return bug_error("generated code needs {}, which nobody has", name);
        addresses[index] = nullptr;
      }
      char* at = base + place + list[r].r_offset;
      const char* value = target + list[r].r_addend;
      switch (type) {
        case R_X86_64_64:
          std::memcpy(at, &value, 8);
          continue;
        case R_X86_64_PC32:
        case R_X86_64_PLT32:
          if (!own) {
            const auto [known, first] = stubs.try_emplace(index, stub);
            if (first) {
              write_stub(base + stub, target);
              stub += kStubBytes;
            }
            value = base + known->second + list[r].r_addend;
          }
          break;
        case R_X86_64_GOTPCREL:
        case R_X86_64_GOTPCRELX:
        case R_X86_64_REX_GOTPCRELX: {
          const auto [known, first] = entries.try_emplace(index, pointers);
          if (first) {
            std::memcpy(base + pointers, &target, 8);
            pointers += 8;
          }
          value = base + known->second + list[r].r_addend;
          break;
        }
        default:
          return bug_error("generated code has a relocation of type {}", type);
      }
      const int64_t distance = value - at;
      const auto narrow = static_cast<int32_t>(distance);
      if (narrow != distance) return bug_error("generated code is too far from what it uses");
      std::memcpy(at, &narrow, 4);
    }
  }
  if (::mprotect(base, constants, PROT_READ | PROT_EXEC) != 0 ||
      ::mprotect(base + constants, bytes - constants, PROT_READ) != 0)
    return failed_error("generated code can't be made executable: {}", std::strerror(errno));
  object->symbols_ = std::move(names);
  return std::shared_ptr<const LoadedObject>(std::move(object));
#endif
}

}  // namespace millstream::jit
