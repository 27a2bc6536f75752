// libmillstream_jit.so: generates LLVM IR for a loop, lets the bodies dissolve in it, and makes an object file.
//
// The loop is one IR loop over rows without branches of its own: values by bodies, conditions by select. A row
// that fails sets a flag where it counts: where its arguments are not NULL and the conditions around it hold. Bodies
// are total, so the others may be computed too.
//
// The module starts as the lazily read module of all bodies; those that the loop calls are read, the rest is dropped
// unread. After inlining, all loads and stores of the loop are marked as independent of one another across rows
// (columns and results never overlap), which lets the vectoriser go without checks.

#include <map>
#include <mutex>
#include <set>

#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/Bitcode/BitcodeReader.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/SubtargetFeature.h>
#include <llvm/Transforms/IPO/AlwaysInliner.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Utils/ModuleUtils.h>

#include "jit/compiler.h"

extern "C" {
// The bitcode, put into the library by bodies.S.
extern const char millstream_jit_bodies[];
extern const char millstream_jit_bodies_end[];
}

namespace millstream::jit {
namespace {

llvm::MemoryBufferRef bodies_buffer() {
  return {llvm::StringRef(millstream_jit_bodies,
                          static_cast<size_t>(millstream_jit_bodies_end - millstream_jit_bodies)),
          "bodies"};
}

std::string text_of(llvm::Error error) {
  std::string text;
  llvm::handleAllErrors(std::move(error), [&](const llvm::ErrorInfoBase& info) { text += info.message(); });
  return text;
}

/// A value of the row at hand; `valid` null: never NULL.
struct Emitted {
  llvm::Value* value = nullptr;
  llvm::Value* valid = nullptr;
};

class Generator {
 public:
  Generator(const Loop& loop, llvm::Module& module)
      : loop_(loop), module_(module), context_(module.getContext()), b_(context_), entry_(context_) {}

  Status generate() {
    auto* pointer = llvm::PointerType::getUnqual(context_);
    auto* type =
        llvm::FunctionType::get(b_.getInt32Ty(), {pointer, pointer, pointer, b_.getInt64Ty()}, false);
    function_ = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, "loop", module_);
    function_->addFnAttr(llvm::Attribute::NoUnwind);
    for (unsigned i = 0; i < 3; ++i) {
      function_->addParamAttr(i, llvm::Attribute::NoAlias);
      function_->addParamAttr(i, llvm::Attribute::getWithAlignment(context_, llvm::Align(16)));
    }
    const char* names[] = {"in", "out", "parameters", "rows"};
    for (unsigned i = 0; i < 4; ++i) function_->getArg(i)->setName(names[i]);

    auto* entry = llvm::BasicBlock::Create(context_, "entry", function_);
    auto* body = llvm::BasicBlock::Create(context_, "body", function_);
    auto* end = llvm::BasicBlock::Create(context_, "end", function_);
    entry_.SetInsertPoint(entry);
    auto* jump = entry_.CreateBr(body);
    entry_.SetInsertPoint(jump);  // everything loop-invariant goes before it
    b_.SetInsertPoint(body);
    row_ = b_.CreatePHI(b_.getInt64Ty(), 2, "row");
    row_->addIncoming(b_.getInt64(0), entry);
    auto* failed_before = b_.CreatePHI(b_.getInt1Ty(), 2, "failed");
    failed_before->addIncoming(b_.getFalse(), entry);
    failed_ = b_.getFalse();

    for (size_t o = 0; o < loop_.outputs.size(); ++o) MILLSTREAM_TRY(output(static_cast<int>(o)));

    auto* failed = b_.CreateOr(failed_before, failed_);
    auto* next = b_.CreateAdd(row_, b_.getInt64(1), "next", true, true);
    auto* latch = b_.CreateCondBr(b_.CreateICmpULT(next, function_->getArg(3)), body, end);
    row_->addIncoming(next, body);
    failed_before->addIncoming(failed, body);
    access_group_ = llvm::MDNode::getDistinct(context_, {});
    describe(latch, false);
    b_.SetInsertPoint(end);
    b_.CreateRet(b_.CreateZExt(failed, b_.getInt32Ty()));
    return Status::OK();
  }

  /// After inlining: what the loop reads and writes is independent from row to row. Where functions are still called a
  /// row at a time, vectors would only be taken apart for them.
  void mark_accesses() {
    bool calls = false;
    llvm::Instruction* latch = nullptr;
    for (llvm::Instruction& instruction : llvm::instructions(*function_)) {
      if (const auto* call = llvm::dyn_cast<llvm::CallBase>(&instruction)) calls |= is_function(*call);
      if (instruction.hasMetadata(llvm::LLVMContext::MD_loop)) latch = &instruction;
      if (instruction.mayReadOrWriteMemory() && !llvm::isa<llvm::AllocaInst>(instruction) &&
          instruction.getParent() != &function_->getEntryBlock())
        instruction.setMetadata(llvm::LLVMContext::MD_access_group, access_group_);
    }
    if (calls && latch) describe(latch, true);
  }

  llvm::Function* function() { return function_; }

 private:
  /// Calls machine code, rather than becoming some instructions.
  static bool is_function(const llvm::CallBase& call) {
    switch (call.getIntrinsicID()) {
      case llvm::Intrinsic::not_intrinsic:
      case llvm::Intrinsic::sin:
      case llvm::Intrinsic::cos:
      case llvm::Intrinsic::tan:
      case llvm::Intrinsic::exp:
      case llvm::Intrinsic::exp2:
      case llvm::Intrinsic::log:
      case llvm::Intrinsic::log2:
      case llvm::Intrinsic::log10:
      case llvm::Intrinsic::pow:
        return true;
      default:
        return false;
    }
  }

  /// What the optimiser is told of the loop that `latch` closes. Each loop has its own identity.
  void describe(llvm::Instruction* latch, bool row_by_row) {
    const auto fact = [&](const char* name, llvm::Metadata* value) {
      return llvm::MDNode::get(context_, {llvm::MDString::get(context_, name), value});
    };
    auto temporary = llvm::MDNode::getTemporary(context_, {});
    llvm::SmallVector<llvm::Metadata*, 4> facts = {temporary.get(),
                                                   fact("llvm.loop.parallel_accesses", access_group_)};
    if (row_by_row) {
      auto* one = llvm::ConstantAsMetadata::get(b_.getInt32(1));
      facts.push_back(fact("llvm.loop.vectorize.width", one));
      facts.push_back(fact("llvm.loop.interleave.count", one));
    }
    auto* identity = llvm::MDNode::getDistinct(context_, facts);
    identity->replaceOperandWith(0, identity);
    latch->setMetadata(llvm::LLVMContext::MD_loop, identity);
  }

  llvm::Type* memory_type(Machine machine) {
    switch (machine) {
      case Machine::kBool:
      case Machine::kI8:
      case Machine::kU8:
        return b_.getInt8Ty();
      case Machine::kI16:
      case Machine::kU16:
        return b_.getInt16Ty();
      case Machine::kI32:
      case Machine::kU32:
        return b_.getInt32Ty();
      case Machine::kI64:
      case Machine::kU64:
        return b_.getInt64Ty();
      case Machine::kF32:
        return b_.getFloatTy();
      case Machine::kF64:
        return b_.getDoubleTy();
      case Machine::k128:
        return b_.getInt128Ty();
      case Machine::kText:
        return llvm::StructType::get(b_.getInt64Ty(), llvm::PointerType::getUnqual(context_));
    }
    return nullptr;
  }
  llvm::Type* value_type(Machine machine) {
    return machine == Machine::kBool ? b_.getInt1Ty() : memory_type(machine);
  }
  static llvm::Align alignment(Machine machine) {
    return llvm::Align(static_cast<uint64_t>(std::min(width_of(machine), 8)));
  }

  llvm::Value* load(llvm::IRBuilder<>& at, Machine machine, llvm::Value* pointer) {
    llvm::Value* value = at.CreateAlignedLoad(memory_type(machine), pointer, alignment(machine));
    return machine == Machine::kBool ? at.CreateICmpNE(value, at.getInt8(0)) : value;
  }
  void store(llvm::IRBuilder<>& at, Machine machine, llvm::Value* value, llvm::Value* pointer) {
    if (machine == Machine::kBool) value = at.CreateZExt(value, at.getInt8Ty());
    at.CreateAlignedStore(value, pointer, alignment(machine));
  }

  /// Pointer number `slot` of an array of them, read before the loop.
  llvm::Value* pointer(unsigned argument, int slot) {
    llvm::Value*& known = pointers_[{argument, slot}];
    if (!known) {
      auto* type = llvm::PointerType::getUnqual(context_);
      known = entry_.CreateLoad(type, entry_.CreateConstInBoundsGEP1_64(type, function_->getArg(argument),
                                                                        static_cast<uint64_t>(slot)));
    }
    return known;
  }
  llvm::Value* element(llvm::Value* base, Machine machine) {
    return b_.CreateInBoundsGEP(memory_type(machine), base, row_);
  }
  llvm::Value* parameter_pointer(int index) {
    const int offset = loop_.parameter_offsets[static_cast<size_t>(index)];
    return entry_.CreateConstInBoundsGEP1_64(entry_.getInt8Ty(), function_->getArg(2),
                                             static_cast<uint64_t>(offset));
  }
  /// Memory that lives through one row: SROA makes registers of it.
  llvm::Value* slot(Machine machine) {
    auto* memory = entry_.CreateAlloca(memory_type(machine));
    memory->setAlignment(llvm::Align(machine == Machine::k128 ? 16 : 8));
    return memory;
  }

  // Logic over conditions of which null means true.
  llvm::Value* both(llvm::Value* a, llvm::Value* b) {
    if (!a) return b;
    if (!b) return a;
    return b_.CreateAnd(a, b);
  }
  llvm::Value* or_true(llvm::Value* condition) { return condition ? condition : b_.getTrue(); }
  llvm::Value* is_true(const Emitted& e) { return both(e.value, e.valid); }
  llvm::Value* is_false(const Emitted& e) { return both(b_.CreateNot(e.value), e.valid); }
  void fail_where(llvm::Value* condition) { failed_ = b_.CreateOr(failed_, condition); }

  const Node& node(int index) const { return loop_.nodes[static_cast<size_t>(index)]; }

  Emitted emit(int index, llvm::Value* active) {
    if (!node(index).can_fail) active = nullptr;
    const auto key = std::make_pair(index, active);
    if (const auto known = emitted_.find(key); known != emitted_.end()) return known->second;
    const Emitted result = make(node(index), active);
    emitted_[key] = result;
    return result;
  }

  llvm::Value* call_body(const Node& n, const std::vector<llvm::Value*>& values,
                         const std::vector<Machine>& types, Machine result, llvm::Value** flag) {
    llvm::Function* body = module_.getFunction(n.body);
    if (!body) {
      missing_ = n.body;
      return llvm::Constant::getNullValue(value_type(result));
    }
    std::vector<llvm::Value*> arguments;
    if (body->arg_size() == values.size() + 3) {
      arguments.push_back(n.index >= 0 ? parameter_pointer(n.index) : function_->getArg(2));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      llvm::Value* memory = slot(types[i]);
      store(b_, types[i], values[i], memory);
      arguments.push_back(memory);
    }
    llvm::Value* out = slot(result);
    llvm::Value* flag_memory = slot(Machine::kU8);
    arguments.push_back(out);
    arguments.push_back(flag_memory);
    if (arguments.size() != body->arg_size()) {
      missing_ = n.body;
      return llvm::Constant::getNullValue(value_type(result));
    }
    b_.CreateCall(body, arguments)->addFnAttr(llvm::Attribute::AlwaysInline);
    if (flag) *flag = b_.CreateICmpNE(b_.CreateLoad(b_.getInt8Ty(), flag_memory), b_.getInt8(0));
    return load(b_, result, out);
  }

  Emitted make(const Node& n, llvm::Value* active) {
    switch (n.op) {
      case Op::kColumn: {
        Emitted result;
        if (n.type == Machine::kText) {
          llvm::Value* offset = element(pointer(0, 3 * n.index), Machine::kI32);
          llvm::Value* begin = load(b_, Machine::kI32, offset);
          llvm::Value* end =
              load(b_, Machine::kI32, b_.CreateConstInBoundsGEP1_64(b_.getInt32Ty(), offset, 1));
          llvm::Value* bytes = b_.CreateInBoundsGEP(b_.getInt8Ty(), pointer(0, 3 * n.index + 2), begin);
          llvm::Value* size = b_.CreateZExt(b_.CreateSub(end, begin), b_.getInt64Ty());
          result.value = llvm::PoisonValue::get(memory_type(n.type));
          result.value = b_.CreateInsertValue(result.value, size, 0u);
          result.value = b_.CreateInsertValue(result.value, bytes, 1u);
        } else {
          result.value = load(b_, n.type, element(pointer(0, 3 * n.index), n.type));
        }
        if (n.nullable)
          result.valid = load(b_, Machine::kBool, element(pointer(0, 3 * n.index + 1), Machine::kBool));
        return result;
      }
      case Op::kParameter:
        return {load(entry_, n.type, parameter_pointer(n.index)), nullptr};
      case Op::kNull:
        return {llvm::Constant::getNullValue(value_type(n.type)), b_.getFalse()};
      case Op::kBody: {
        std::vector<llvm::Value*> values;
        std::vector<Machine> types;
        llvm::Value* valid = nullptr;
        for (int argument : n.arguments) {
          const Emitted e = emit(argument, active);
          values.push_back(e.value);
          types.push_back(node(argument).type);
          valid = both(valid, e.valid);
        }
        llvm::Value* flag = nullptr;
        llvm::Value* value = call_body(n, values, types, n.type, n.checked || n.gives_null ? &flag : nullptr);
        if (flag && n.checked) fail_where(both(flag, both(valid, active)));
        if (flag && n.gives_null) valid = both(valid, flag);
        return {value, valid};
      }
      case Op::kNot: {
        const Emitted e = emit(n.arguments[0], active);
        return {b_.CreateNot(e.value), e.valid};
      }
      case Op::kIsNull:
      case Op::kIsNotNull: {
        const Emitted e = emit(n.arguments[0], active);
        llvm::Value* valid = or_true(e.valid);
        return {n.op == Op::kIsNull ? b_.CreateNot(valid) : valid, nullptr};
      }
      case Op::kAnd:
      case Op::kOr:
      case Op::kFilterAnd:
        return connective(n, active);
      case Op::kCase:
        return case_of(n, active);
      case Op::kCoalesce: {
        std::vector<Emitted> all;
        llvm::Value* wanted = active;
        for (int argument : n.arguments) {
          all.push_back(emit(argument, wanted));
          if (!all.back().valid) break;
          wanted = both(wanted, b_.CreateNot(all.back().valid));
        }
        Emitted result = all.back();
        for (size_t i = all.size() - 1; i-- > 0;) {
          result.value = b_.CreateSelect(all[i].valid, all[i].value, result.value);
          if (result.valid) result.valid = b_.CreateOr(all[i].valid, result.valid);
        }
        return result;
      }
      case Op::kIn: {
        const Emitted value = emit(n.arguments[0], active);
        llvm::Value* found = b_.getFalse();
        llvm::Value* null_listed = nullptr;
        for (size_t i = 1; i < n.arguments.size(); ++i) {
          const Emitted item = emit(n.arguments[i], active);
          if (node(n.arguments[i]).op == Op::kNull) {
            null_listed = b_.getTrue();
            continue;
          }
          const Machine type = node(n.arguments[0]).type;
          found = b_.CreateOr(
              found, both(call_body(n, {value.value, item.value}, {type, type}, Machine::kBool, nullptr),
                          item.valid));
          if (item.valid) {
            llvm::Value* null = b_.CreateNot(item.valid);
            null_listed = null_listed ? b_.CreateOr(null_listed, null) : null;
          }
        }
        llvm::Value* valid = value.valid;
        if (null_listed) valid = both(valid, b_.CreateOr(found, b_.CreateNot(null_listed)));
        return {found, valid};
      }
      case Op::kPick: {
        Emitted best = emit(n.arguments[0], active);
        for (size_t i = 1; i < n.arguments.size(); ++i) {
          const Emitted candidate = emit(n.arguments[i], active);
          llvm::Value* better =
              call_body(n, {candidate.value, best.value}, {n.type, n.type}, Machine::kBool, nullptr);
          if (best.valid) better = b_.CreateOr(better, b_.CreateNot(best.valid));
          better = both(better, candidate.valid);
          best.value = b_.CreateSelect(better, candidate.value, best.value);
          best.valid = best.valid && candidate.valid ? b_.CreateOr(best.valid, candidate.valid) : nullptr;
        }
        return best;
      }
      case Op::kDistinct:
      case Op::kNotDistinct: {
        const Emitted x = emit(n.arguments[0], active), y = emit(n.arguments[1], active);
        const Machine type = node(n.arguments[0]).type;
        llvm::Value* different = call_body(n, {x.value, y.value}, {type, type}, Machine::kBool, nullptr);
        if (x.valid || y.valid) {
          llvm::Value *known_x = or_true(x.valid), *known_y = or_true(y.valid);
          different = b_.CreateOr(b_.CreateAnd(b_.CreateAnd(known_x, known_y), different),
                                  b_.CreateXor(known_x, known_y));
        }
        return {n.op == Op::kDistinct ? different : b_.CreateNot(different), nullptr};
      }
    }
    return {};
  }

  Emitted connective(const Node& n, llvm::Value* active) {
    // One that decides is enough; the other answer needs all.
    const bool is_or = n.op == Op::kOr;
    llvm::Value* all = nullptr;  // AND: all true; OR: all false
    llvm::Value* any = nullptr;  // AND: one is false; OR: one is true
    llvm::Value* wanted = active;
    bool nullable = false;
    for (int argument : n.arguments) {
      const Emitted e = emit(argument, wanted);
      llvm::Value* yes = is_true(e);
      llvm::Value* no = is_false(e);
      llvm::Value* all_here = is_or ? no : yes;
      llvm::Value* any_here = is_or ? yes : no;
      nullable |= e.valid != nullptr;
      all = both(all, all_here);
      any = any ? b_.CreateOr(any, any_here) : any_here;
      if (n.can_fail) wanted = both(active, n.op == Op::kFilterAnd ? all : b_.CreateNot(any));
    }
    if (!nullable) return {is_or ? any : all, nullptr};
    return {is_or ? any : all, b_.CreateOr(all, any)};
  }

  Emitted case_of(const Node& n, llvm::Value* active) {
    llvm::Value* wanted = active;
    std::vector<llvm::Value*> conditions;
    std::vector<Emitted> results;
    for (size_t i = 0; i + 1 < n.arguments.size(); i += 2) {
      llvm::Value* condition = is_true(emit(n.arguments[i], wanted));
      conditions.push_back(condition);
      results.push_back(emit(n.arguments[i + 1], n.can_fail ? both(wanted, condition) : nullptr));
      if (n.can_fail) wanted = both(wanted, b_.CreateNot(condition));
    }
    Emitted result = emit(n.arguments.back(), wanted);
    for (size_t i = conditions.size(); i-- > 0;) {
      if (result.valid || results[i].valid)
        result.valid = b_.CreateSelect(conditions[i], or_true(results[i].valid), or_true(result.valid));
      result.value = b_.CreateSelect(conditions[i], results[i].value, result.value);
    }
    return result;
  }

  Status output(int index) {
    const LoopOutput& output = loop_.outputs[static_cast<size_t>(index)];
    const Node& n = node(output.node);
    const Emitted e = emit(output.node, nullptr);
    if (!missing_.empty()) return bug_error("there is no body {} that fits", missing_);
    switch (output.destination) {
      case Destination::kColumn:
        store(b_, n.type, e.value, element(pointer(1, 2 * index), n.type));
        if (e.valid && !n.nullable) return bug_error("a value of a loop is NULL where none can be");
        if (n.nullable)
          store(b_, Machine::kBool, or_true(e.valid), element(pointer(1, 2 * index + 1), Machine::kBool));
        break;
      case Destination::kFilter:
        store(b_, Machine::kBool, is_true(e), element(pointer(1, 2 * index), Machine::kBool));
        break;
      case Destination::kFloat32: {
        llvm::Value* value = e.value;
        switch (n.type) {
          case Machine::kF32:
          case Machine::kF64:
            break;
          case Machine::kBool:
          case Machine::kU8:
          case Machine::kU16:
          case Machine::kU32:
          case Machine::kU64:
            value = b_.CreateUIToFP(value, b_.getDoubleTy());
            break;
          default:
            value = b_.CreateSIToFP(value, b_.getDoubleTy());
        }
        if (n.type != Machine::kF32) value = b_.CreateFPTrunc(value, b_.getFloatTy());
        store(b_, Machine::kF32, value, element(pointer(1, 2 * index), Machine::kF32));
        // Infinities and NaN have all bits of the exponent set.
        auto* bits = b_.CreateAnd(b_.CreateBitCast(value, b_.getInt32Ty()), b_.getInt32(0x7F800000));
        fail_where(b_.CreateICmpEQ(bits, b_.getInt32(0x7F800000)));
        if (e.valid) fail_where(b_.CreateNot(e.valid));
        break;
      }
    }
    return Status::OK();
  }

  const Loop& loop_;
  llvm::Module& module_;
  llvm::LLVMContext& context_;
  llvm::IRBuilder<> b_;      // in the loop
  llvm::IRBuilder<> entry_;  // before it
  llvm::Function* function_ = nullptr;
  llvm::PHINode* row_ = nullptr;
  llvm::Value* failed_ = nullptr;
  llvm::MDNode* access_group_ = nullptr;
  std::map<std::pair<unsigned, int>, llvm::Value*> pointers_;
  std::map<std::pair<int, llvm::Value*>, Emitted> emitted_;
  std::string missing_;
};

struct Host {
  std::string triple, cpu, features;
  const llvm::Target* target = nullptr;
};

const Host& host() {
  static const Host host = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    Host h;
    h.triple = llvm::sys::getProcessTriple();
    h.cpu = llvm::sys::getHostCPUName().str();
    llvm::SubtargetFeatures features;
    for (const auto& feature : llvm::sys::getHostCPUFeatures())
      features.AddFeature(feature.first(), feature.second);
    h.features = features.getString();
    std::string ignored;
    h.target = llvm::TargetRegistry::lookupTarget(h.triple, ignored);
    return h;
  }();
  return host;
}

/// Reads the bodies that are reached from `function` and drops the others.
Status keep_reached(llvm::Module& module, llvm::Function& function) {
  std::vector<llvm::Function*> open = {&function};
  std::set<llvm::Function*> reached = {&function};
  while (!open.empty()) {
    llvm::Function* at = open.back();
    open.pop_back();
    if (auto error = at->materialize())
      return bug_error("the bodies can't be read: {}", text_of(std::move(error)));
    for (llvm::Instruction& instruction : llvm::instructions(*at)) {
      for (llvm::Value* operand : instruction.operands()) {
        auto* called = llvm::dyn_cast<llvm::Function>(operand);
        if (called && reached.insert(called).second) open.push_back(called);
      }
    }
  }
  // Functions in tables of constants are rare: all that a constant names stay.
  std::vector<llvm::Function*> dropped;
  for (llvm::Function& f : module) {
    if (!reached.count(&f)) dropped.push_back(&f);
  }
  for (llvm::Function* f : dropped) {
    if (!f->use_empty()) {
      if (auto error = f->materialize())
        return bug_error("the bodies can't be read: {}", text_of(std::move(error)));
      continue;
    }
    f->eraseFromParent();
  }
  if (auto error = module.materializeMetadata())
    return bug_error("the bodies can't be read: {}", text_of(std::move(error)));
  return Status::OK();
}

std::string print(const llvm::Module& module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream, nullptr);
  return text;
}

Result<CompiledLoop> compile(const Loop& loop, bool with_ir) {
  const Host& machine = host();
  if (!machine.target) return bug_error("LLVM has no code generator for {}", machine.triple);
  llvm::LLVMContext context;
  auto lazy = llvm::getLazyBitcodeModule(bodies_buffer(), context);
  if (!lazy) return bug_error("the bodies can't be read: {}", text_of(lazy.takeError()));
  std::unique_ptr<llvm::Module> module = std::move(*lazy);
  Generator generator(loop, *module);
  MILLSTREAM_TRY(generator.generate());
  MILLSTREAM_TRY(keep_reached(*module, *generator.function()));

  std::unique_ptr<llvm::TargetMachine> target(machine.target->createTargetMachine(
      machine.triple, machine.cpu, machine.features, llvm::TargetOptions(), llvm::Reloc::PIC_,
      llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
  module->setTargetTriple(machine.triple);
  module->setDataLayout(target->createDataLayout());
  for (llvm::Function& function : *module) {
    if (function.isDeclaration()) continue;
    function.addFnAttr("target-cpu", machine.cpu);
    function.addFnAttr("target-features", machine.features);
    function.addFnAttr("prefer-vector-width", "256");
    if (&function != generator.function()) function.setLinkage(llvm::GlobalValue::InternalLinkage);
  }

  CompiledLoop result;
  if (with_ir) result.raw_ir = print(*module);
  std::string problem;
  llvm::raw_string_ostream problems(problem);
  if (llvm::verifyFunction(*generator.function(), &problems))
    return bug_error("generated code is wrong: {}", problem);

  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = true;
  tuning.SLPVectorization = false;
  tuning.LoopInterleaving = true;
  llvm::PassBuilder builder(target.get(), tuning);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);
  {
    llvm::ModulePassManager early;
    early.addPass(llvm::AlwaysInlinerPass());
    llvm::FunctionPassManager simplify;
    simplify.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
    simplify.addPass(llvm::EarlyCSEPass());
    early.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(simplify)));
    early.run(*module, modules);
  }
  generator.mark_accesses();
  {
    // As many rows a vector as the narrowest column has: bytes of booleans and validity are then read and written by
    // whole vectors, not by fours for the sake of the doubles beside them. Where rows are packed, many results make
    // such loops so long that compiling them costs more than they save. LLVM has one such option for all threads.
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    const bool packs = loop.outputs[0].destination == Destination::kFloat32;
    const auto& options = llvm::cl::getRegisteredOptions();
    if (const auto wide = options.find("vectorizer-maximize-bandwidth"); wide != options.end())
      static_cast<llvm::cl::opt<bool>*>(wide->second)->setValue(!packs);
    builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(*module, modules);
  }
  if (with_ir) result.ir = print(*module);

  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager emit;
  if (target->addPassesToEmitFile(emit, stream, nullptr, llvm::CodeGenFileType::ObjectFile))
    return bug_error("LLVM can't write objects for {}", machine.triple);
  emit.run(*module);
  result.object.assign(bytes.begin(), bytes.end());
  return result;
}

std::vector<std::string> body_names() {
  llvm::LLVMContext context;
  auto lazy = llvm::getLazyBitcodeModule(bodies_buffer(), context);
  std::vector<std::string> names;
  if (!lazy) {
    llvm::consumeError(lazy.takeError());
    return names;
  }
  for (const llvm::Function& function : **lazy) {
    if (!function.isDeclaration() && !function.hasLocalLinkage()) names.push_back(function.getName().str());
  }
  return names;
}

}  // namespace
}  // namespace millstream::jit

extern "C" __attribute__((visibility("default"))) const millstream::jit::Compiler* millstream_jit_compiler() {
  static const millstream::jit::Compiler compiler = {millstream::jit::compile, millstream::jit::body_names};
  return &compiler;
}
