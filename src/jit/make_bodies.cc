// Run by the build: joins the bitcode of all function files into one module of bodies, and lists them.
//
//     make_bodies OUT.bc OUT.inc SALT... -- IN.bc...
//
// A body is a function Scalar<…>::call or PreparedScalar<…>::call of expr/kernel.h. It is renamed to what
// typeid().name() gives for its class in the program (without the last letter), so that a Binding names its body.
// Everything else that the files define is dropped unless a body needs it. OUT.inc lists hashes of the names with
// what the code generator wants to know of a body. SALT: files whose content is part of the version that cached
// objects are kept under.

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#include <llvm/Bitcode/BitcodeWriter.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DebugInfo.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/PassManager.h>
#include <llvm/IRReader/IRReader.h>
#include <llvm/Linker/Linker.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Transforms/IPO/GlobalDCE.h>

#include "jit/body_table.h"

namespace {

using llvm::Function;
using llvm::GlobalValue;
using llvm::Module;

[[noreturn]] void fail(const std::string& message) {
  std::cerr << "make_bodies: " << message << "\n";
  std::exit(1);
}

/// The name that the program knows a body by; empty for other functions.
std::string body_key(llvm::StringRef symbol) {
  if (!symbol.starts_with("_ZN10millstream4expr6ScalarI") &&
      !symbol.starts_with("_ZN10millstream4expr14PreparedScalarI"))
    return "";
  const size_t call = symbol.rfind("4callE");
  if (call == llvm::StringRef::npos) return "";
  return symbol.substr(2, call - 2).str();
}

void drop_global(Module& module, const char* name) {
  if (auto* global = module.getGlobalVariable(name, true)) global->eraseFromParent();
}

/// Leaves the attributes that say what a function does, not those of the machine it was compiled for.
void strip(Function& function) {
  for (const char* name :
       {"target-cpu", "target-features", "tune-cpu", "frame-pointer", "min-legal-vector-width",
        "stack-protector-buffer-size", "no-trapping-math", "probe-stack"})
    function.removeFnAttr(name);
  function.removeFnAttr(llvm::Attribute::UWTable);
  function.removeFnAttr(llvm::Attribute::NoInline);
  function.removeFnAttr(llvm::Attribute::OptimizeNone);
  function.setComdat(nullptr);
}

struct Facts {
  bool straight = true;  ///< no branches, no calls but of intrinsics
  bool usable = true;    ///< touches no variable memory of its own
};

void look(const Function& function, bool entry, std::set<const Function*>& seen, Facts& facts) {
  if (!seen.insert(&function).second) return;
  if (function.isDeclaration()) {
    if (!function.isIntrinsic()) facts.straight = false;
    return;
  }
  if (function.size() > 1 || !entry) facts.straight = false;
  for (const llvm::Instruction& instruction : llvm::instructions(function)) {
    for (const llvm::Use& use : instruction.operands()) {
      const llvm::Value* value = use->stripPointerCasts();
      if (const auto* called = llvm::dyn_cast<Function>(value)) look(*called, false, seen, facts);
      if (const auto* variable = llvm::dyn_cast<llvm::GlobalVariable>(value))
        facts.usable &= variable->isConstant() && variable->hasInitializer();
    }
    if (llvm::isa<llvm::InvokeInst>(instruction)) facts.usable = false;
  }
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("can't read " + path);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) fail("usage: make_bodies OUT.bc OUT.inc SALT... -- IN.bc...");
  std::string salt = LLVM_VERSION_STRING;
  int at = 3;
  for (; at < argc && std::string(argv[at]) != "--"; ++at) salt += read(argv[at]);

  llvm::LLVMContext context;
  Module bodies("bodies", context);
  llvm::Linker linker(bodies);
  std::map<std::string, std::pair<std::string, bool>> owners;  // file, and whether the name is the file's own
  for (int i = at + 1; i < argc; ++i) {
    llvm::SMDiagnostic error;
    auto module = llvm::parseIRFile(argv[i], error, context);
    if (!module) fail(std::string(argv[i]) + ": " + error.getMessage().str());
    llvm::StripDebugInfo(*module);
    for (const char* name : {"llvm.used", "llvm.compiler.used", "llvm.global_ctors", "llvm.global_dtors"})
      drop_global(*module, name);
    for (Function& function : *module) {
      strip(function);
      if (function.isDeclaration()) continue;
      const std::string key = body_key(function.getName());
      const bool own = function.hasLocalLinkage();
      function.setLinkage(GlobalValue::InternalLinkage);
      if (key.empty()) continue;
      const auto [owner, first] = owners.try_emplace(key, argv[i], own);
      if (!first) {
        if (!own && !owner->second.second) continue;
        fail("two bodies have the same name; rename one: " + key + " of " + owner->second.first + " and " +
             argv[i]);
      }
      function.setName(key);
      if (function.getName() != key) fail("the name is taken: " + key);
      function.setLinkage(GlobalValue::ExternalLinkage);
    }
    for (llvm::GlobalAlias& alias : llvm::make_early_inc_range(module->aliases())) {
      alias.replaceAllUsesWith(alias.getAliasee());
      alias.eraseFromParent();
    }
    for (llvm::GlobalVariable& variable : module->globals()) {
      variable.setComdat(nullptr);
      if (variable.hasInitializer()) variable.setLinkage(GlobalValue::InternalLinkage);
    }
    if (linker.linkInModule(std::move(module))) fail(std::string("can't link ") + argv[i]);
  }
  if (auto* flags = bodies.getModuleFlagsMetadata()) flags->eraseFromParent();
  for (const char* name : {"llvm.ident", "llvm.linker.options"}) {
    if (auto* metadata = bodies.getNamedMetadata(name)) metadata->eraseFromParent();
  }

  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);
  llvm::ModulePassManager passes;
  passes.addPass(llvm::GlobalDCEPass());
  passes.run(bodies, modules);

  std::map<uint64_t, std::pair<std::string, uint8_t>> table;
  for (const Function& function : bodies) {
    if (function.isDeclaration() || function.hasLocalLinkage()) continue;
    Facts facts;
    std::set<const Function*> seen;
    look(function, true, seen, facts);
    const uint8_t known = static_cast<uint8_t>((facts.usable ? millstream::jit::kBodyUsable : 0) |
                                               (facts.straight ? millstream::jit::kBodyStraight : 0));
    const std::string name = function.getName().str();
    if (!table.try_emplace(millstream::jit::body_hash(name), name, known).second)
      fail("two names hash alike");
  }
  std::string bitcode;
  {
    llvm::raw_string_ostream stream(bitcode);
    llvm::WriteBitcodeToFile(bodies, stream);
  }
  std::ofstream(argv[1], std::ios::binary) << bitcode;
  std::ofstream list(argv[2]);
  list << "constexpr uint64_t kBodiesVersion = " << millstream::jit::body_hash(bitcode + salt) << "ull;\n";
  list << "constexpr BodyEntry kBodies[] = {\n";
  for (const auto& [hash, entry] : table) {
    list << "    {" << hash << "ull, " << int{entry.second} << "},";
    if (!(entry.second & millstream::jit::kBodyUsable)) list << "  // " << entry.first;
    list << "\n";
  }
  list << "};\n";
  return list.good() ? 0 : 1;
}
