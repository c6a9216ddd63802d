package proc

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Landlock knows files, connections, signals and tracing. What else one process of a
// user can do to another is kept in the sandbox by a filter of system calls
// (seccomp(2)): it changes the limits, the scheduling and the memory of none but
// itself, shares no keyring and no System V memory with any, and makes no user
// namespace, in which it would have capabilities. Landlock also knows no way to the
// network but connect(2) and bind(2) of plain TCP: without the network, the filter
// lets no socket be made that could reach it.
//
// The filter names what is refused. So it also refuses all calls that were made after
// it, as a kernel does that does not have them: nobody has looked at those.

// Where in struct seccomp_data a filter finds things. Both kinds of processor that
// there is a filter for have the lower half of an argument first.
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16
)

// newestCall is the last call that was looked at; the numbers of newer ones are the
// same on all processors.
const newestCall = unix.SYS_RSEQ_SLICE_YIELD

// abi is a processor's kind of system calls: which column of [ruledCalls] it is.
type abi int

const (
	amd64 abi = iota
	i386
	arm64
	arm
	abis
)

// auditArch is what the kernel calls an abi.
var auditArch = [abis]uint32{
	amd64: unix.AUDIT_ARCH_X86_64, i386: unix.AUDIT_ARCH_I386, arm64: unix.AUDIT_ARCH_AARCH64, arm: unix.AUDIT_ARCH_ARM,
}

// native are the kinds of calls that programs of this processor may make: its own,
// and those of its 32-bit programs. The x32 ones of amd64 are calls of amd64 whose
// numbers are beyond the newest.
var native = map[string][]abi{"amd64": {amd64, i386}, "arm64": {arm64, arm}}

// Beyond the newest, arm has calls of its own, to flush its caches, say.
const armFirst, armLast = 0xf0000, 0xf0006

// verdict is a piece of a filter that ends it.
type verdict = []bpf.Instruction

var (
	allowed = verdict{bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}}
	denied  = verdict{bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}}
	// absent is what a program gets from a kernel that does not have the call: it
	// knows what to do without.
	absent = verdict{bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}}
	// closedOff is what Landlock says of a network that is closed.
	closedOff = verdict{bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EACCES)}}
	killed    = verdict{bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS}}
)

// argument loads the lower half of an argument, all that the kernel takes of an int.
func argument(n uint32) bpf.Instruction {
	return bpf.LoadAbsolute{Off: dataArgs + 8*n, Size: 4}
}

func upperHalf(n uint32) bpf.Instruction {
	return bpf.LoadAbsolute{Off: dataArgs + 8*n + 4, Size: 4}
}

// onlyIf allows a call whose arguments, from the first, are these.
func onlyIf(values ...uint32) (v verdict) {
	for n, value := range values {
		v = slices.Concat(v, verdict{argument(uint32(n)), bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipTrue: 1}}, denied)
	}
	return slices.Concat(v, allowed)
}

// withoutFlag allows a call whose argument lacks a flag.
func withoutFlag(n, flag uint32) verdict {
	return slices.Concat(verdict{argument(n), bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: flag, SkipTrue: 1}}, denied,
		allowed)
}

var (
	onItself = onlyIf(0) // the first argument is a process; 0 is the one that calls
	// limits of others may be read: no new ones are given, the third argument is nil.
	limiting = slices.Concat(verdict{
		argument(0),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 4},
		argument(2),
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 3},
		upperHalf(2),
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 1},
	}, allowed, denied)
	// withinMachine are sockets of the families that reach nothing but processes and the
	// kernel of this machine. Programs ask the latter for its interfaces.
	withinMachine = slices.Concat(verdict{
		argument(0),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_UNIX, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_NETLINK, SkipTrue: 1},
	}, closedOff, allowed)
	// typing would put characters into a terminal's input.
	typing = slices.Concat(verdict{
		argument(1),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCSTI, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: tiocLinux, SkipTrue: 1},
	}, allowed, denied)
)

const (
	tiocLinux         = 0x541c // TIOCLINUX, which pastes into a console
	ioprioProcess     = 1      // IOPRIO_WHO_PROCESS
	none          int = -1
)

// scope says which sandboxes a rule is for.
type scope int

const (
	all     scope = iota
	sysV          // those without an IPC namespace: the call reaches what one has
	network       // those without the network
)

// ruledCall is a call with a rule.
type ruledCall struct {
	name    string
	numbers [abis]int
	rule    verdict
	scope   scope
}

// everywhere is a call that has the same number on all processors, as the newer ones
// do.
func everywhere(n int) [abis]int { return [abis]int{n, n, n, n} }

// ruledCalls are those that are not simply allowed. What a debugger needs is not
// among them: Landlock keeps tracing in the sandbox, and with it pidfd_getfd and
// process_vm_writev.
var ruledCalls = []ruledCall{
	{"prlimit64", [abis]int{302, 340, 261, 369}, limiting, all},
	{"sched_setaffinity", [abis]int{203, 241, 122, 241}, onItself, all},
	{"sched_setscheduler", [abis]int{144, 156, 119, 156}, onItself, all},
	{"sched_setparam", [abis]int{142, 154, 118, 154}, onItself, all},
	{"sched_setattr", [abis]int{314, 351, 274, 380}, onItself, all},
	{"setpriority", [abis]int{141, 97, 140, 97}, onlyIf(unix.PRIO_PROCESS, 0), all},
	{"ioprio_set", [abis]int{251, 289, 30, 314}, onlyIf(ioprioProcess, 0), all},
	{"migrate_pages", [abis]int{256, 294, 238, 400}, onItself, all},
	{"move_pages", [abis]int{279, 317, 239, 344}, onItself, all},
	{"process_madvise", everywhere(440), denied, all},
	{"kcmp", [abis]int{312, 349, 272, 378}, denied, all},

	{"add_key", [abis]int{248, 286, 217, 309}, denied, all},
	{"request_key", [abis]int{249, 287, 218, 310}, denied, all},
	{"keyctl", [abis]int{250, 288, 219, 311}, denied, all},

	// An identifier need not be got: it can be guessed.
	{"ipc", [abis]int{none, 117, none, none}, denied, sysV},
	{"shmget", [abis]int{29, 395, 194, 307}, denied, sysV},
	{"shmat", [abis]int{30, 397, 196, 305}, denied, sysV},
	{"shmctl", [abis]int{31, 396, 195, 308}, denied, sysV},
	{"semget", [abis]int{64, 393, 190, 299}, denied, sysV},
	{"semop", [abis]int{65, none, 193, 298}, denied, sysV},
	{"semctl", [abis]int{66, 394, 191, 300}, denied, sysV},
	{"semtimedop", [abis]int{220, none, 192, 312}, denied, sysV},
	{"semtimedop_time64", [abis]int{none, 420, none, 420}, denied, sysV},
	{"msgget", [abis]int{68, 399, 186, 303}, denied, sysV},
	{"msgsnd", [abis]int{69, 400, 189, 301}, denied, sysV},
	{"msgrcv", [abis]int{70, 401, 188, 302}, denied, sysV},
	{"msgctl", [abis]int{71, 402, 187, 304}, denied, sysV},
	{"mq_open", [abis]int{240, 277, 180, 274}, denied, sysV},
	{"mq_unlink", [abis]int{241, 278, 181, 275}, denied, sysV},

	{"perf_event_open", [abis]int{298, 336, 241, 364}, denied, all},
	{"bpf", [abis]int{321, 357, 280, 386}, denied, all},
	{"userfaultfd", [abis]int{323, 374, 282, 388}, denied, all},
	{"io_uring_setup", everywhere(425), denied, all},
	{"open_by_handle_at", [abis]int{304, 342, 265, 371}, denied, all},

	{"setns", [abis]int{308, 346, 268, 375}, denied, all},
	{"unshare", [abis]int{272, 310, 97, 337}, withoutFlag(0, unix.CLONE_NEWUSER), all},
	{"clone", [abis]int{56, 120, 220, 120}, withoutFlag(0, unix.CLONE_NEWUSER), all},
	// Its flags are in memory, where a filter cannot look. All take clone instead.
	{"clone3", everywhere(435), absent, all},

	{"socket", [abis]int{41, 359, 198, 281}, withinMachine, network},
	{"socketpair", [abis]int{53, 360, 199, 288}, withinMachine, network}, // TIPC has it, too
	// Its arguments are in memory. For ten years C libraries have done without it.
	{"socketcall", [abis]int{none, 102, none, none}, closedOff, network},

	{"ioctl", [abis]int{16, 54, 29, 54}, typing, all},
}

// section is the part of a filter for one kind of calls; it begins with the number
// loaded.
func (a abi) section(scopes []scope) (s verdict) {
	if a == arm {
		s = slices.Concat(s, verdict{
			bpf.JumpIf{Cond: bpf.JumpLessThan, Val: armFirst, SkipTrue: 2},
			bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: armLast, SkipTrue: 1},
		}, allowed)
	}
	s = slices.Concat(s, verdict{bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: newestCall, SkipTrue: 1}}, absent)
	for _, c := range ruledCalls {
		if n := c.numbers[a]; n != none && slices.Contains(scopes, c.scope) {
			s = append(s, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(n), SkipFalse: uint8(len(c.rule))})
			s = append(s, c.rule...)
		}
	}
	return slices.Concat(s, allowed)
}

// filterOf is the filter for a processor, nil where there is none, with the rules of
// these scopes.
func filterOf(processor string, scopes ...scope) []bpf.Instruction {
	var filter []bpf.Instruction
	for _, a := range native[processor] {
		section := a.section(scopes)
		filter = append(filter,
			bpf.LoadAbsolute{Off: dataArch, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch[a], SkipTrue: 1},
			bpf.Jump{Skip: uint32(len(section)) + 1},
			bpf.LoadAbsolute{Off: dataNumber, Size: 4})
		filter = append(filter, section...)
	}
	if filter == nil {
		return nil
	}
	return append(filter, killed...)
}

// filterCalls has this thread, for good, and all that it executes and starts make no
// calls but those that the filter allows. With ownIPC, it has an IPC namespace, whose
// memory, queues and semaphores are nobody else's; offline, it has no network.
func filterCalls(ownIPC, offline bool) error {
	scopes := []scope{all}
	if !ownIPC {
		scopes = append(scopes, sysV)
	}
	if offline {
		scopes = append(scopes, network)
	}
	raw, err := bpf.Assemble(filterOf(runtime.GOARCH, scopes...))
	if err != nil {
		return fmt.Errorf("sandbox: the filter of system calls: %w", err)
	}
	if len(raw) == 0 || len(raw) > math.MaxUint16 {
		return fmt.Errorf("sandbox: there is no filter of system calls for %s", runtime.GOARCH)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("sandbox: no new privileges: %w", err)
	}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return fmt.Errorf("sandbox: system calls cannot be filtered: %w", errno)
	}
	return nil
}
