package proc

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// verdictOf runs a filter on a call, as the kernel does. The machine of package bpf
// reads what it is given as the network has it, so that is what it gets.
func verdictOf(t *testing.T, filter []bpf.Instruction, arch, number uint32, args ...uint64) uint32 {
	t.Helper()
	vm, err := bpf.NewVM(filter)
	check(t, err)
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[dataNumber:], number)
	binary.BigEndian.PutUint32(data[dataArch:], arch)
	for n, arg := range args {
		binary.BigEndian.PutUint32(data[dataArgs+8*n:], uint32(arg))
		binary.BigEndian.PutUint32(data[dataArgs+8*n+4:], uint32(arg>>32))
	}
	got, err := vm.Run(data)
	check(t, err)
	return uint32(got)
}

var names = [abis]string{amd64: "amd64", i386: "386", arm64: "arm64", arm: "arm"}

// numbersOf are a processor's system calls, as golang.org/x/sys has them.
func numbersOf(t *testing.T, processor string) map[string]int {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		t.Skip("needs the source of golang.org/x/sys:", err)
	}
	f, err := os.Open(filepath.Join(strings.TrimSpace(string(dir)), "unix", "zsysnum_linux_"+processor+".go"))
	check(t, err)
	defer f.Close()
	numbers := map[string]int{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var name string
		var n int
		if _, err := fmt.Sscanf(strings.TrimSpace(lines.Text()), "SYS_%s = %d", &name, &n); err == nil {
			numbers[strings.ToLower(name)] = n
		}
	}
	return numbers
}

func TestTheFilterKnowsTheNumbersOfCalls(t *testing.T) {
	for a := range abis {
		numbers := numbersOf(t, names[a])
		if len(numbers) < 300 {
			t.Fatalf("%s: found %d calls", names[a], len(numbers))
		}
		for _, c := range ruledCalls {
			want, ok := numbers[c.name]
			if !ok {
				want = none
			}
			if got := c.numbers[a]; got != want {
				t.Errorf("%s: %s is %d, want %d", names[a], c.name, got, want)
			}
		}
		for name, n := range numbers {
			if n > newestCall {
				t.Errorf("%s: %s is %d, newer than those that were looked at", names[a], name, n)
			}
		}
	}
}

func TestTheFilterOfEachProcessor(t *testing.T) {
	const (
		yes  = unix.SECCOMP_RET_ALLOW
		no   = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		what = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
		shut = unix.SECCOMP_RET_ERRNO | uint32(unix.EACCES)
	)
	for processor, kinds := range native {
		filter := filterOf(processor, all, sysV, network)
		open := filterOf(processor, all)
		for _, a := range kinds {
			number := map[string]uint32{}
			for _, c := range ruledCalls {
				if c.numbers[a] == none {
					continue
				}
				number[c.name] = uint32(c.numbers[a])
				got := verdictOf(t, open, auditArch[a], uint32(c.numbers[a]), 7, 7, 7)
				if c.scope != all && got != yes {
					t.Errorf("%s: %s with an IPC namespace and the network: got %#x", names[a], c.name, got)
				}
			}
			for _, c := range []struct {
				call string
				args []uint64
				want uint32
			}{
				{"prlimit64", []uint64{0, 7, 4096, 0}, yes},
				{"prlimit64", []uint64{1 << 32, 7, 4096, 0}, yes}, // the kernel takes an int: 0
				{"prlimit64", []uint64{123, 7, 0, 4096}, yes},
				{"prlimit64", []uint64{123, 7, 4096, 0}, no},
				{"prlimit64", []uint64{1<<32 | 123, 7, 4096, 0}, no},
				{"prlimit64", []uint64{123, 7, 1 << 32, 0}, no},
				{"prlimit64", []uint64{0xffffffff, 7, 4096, 0}, no},
				{"sched_setaffinity", []uint64{0, 8, 4096}, yes},
				{"sched_setaffinity", []uint64{123, 8, 4096}, no},
				{"sched_setscheduler", []uint64{123, 0, 4096}, no},
				{"sched_setparam", []uint64{123, 4096}, no},
				{"sched_setattr", []uint64{123, 4096, 0}, no},
				{"setpriority", []uint64{0, 0, 5}, yes},
				{"setpriority", []uint64{0, 123, 5}, no},
				{"setpriority", []uint64{1, 0, 5}, no},
				{"setpriority", []uint64{2, 0, 5}, no},
				{"ioprio_set", []uint64{1, 0, 5}, yes},
				{"ioprio_set", []uint64{1, 123, 5}, no},
				{"ioprio_set", []uint64{2, 0, 5}, no},
				{"ioprio_set", []uint64{3, 0, 5}, no},
				{"migrate_pages", []uint64{0}, yes},
				{"migrate_pages", []uint64{123}, no},
				{"move_pages", []uint64{123}, no},
				{"keyctl", []uint64{0}, no},
				{"io_uring_setup", []uint64{1, 4096}, no},
				{"unshare", []uint64{unix.CLONE_FS}, yes},
				{"unshare", []uint64{unix.CLONE_NEWUSER | unix.CLONE_NEWNS}, no},
				{"clone", []uint64{unix.CLONE_VM | unix.CLONE_THREAD}, yes},
				{"clone", []uint64{uint64(unix.CLONE_NEWUSER) | uint64(unix.SIGCHLD)}, no},
				{"clone3", []uint64{4096, 88}, what},
				{"ioctl", []uint64{0, unix.TCGETS}, yes},
				{"ioctl", []uint64{0, unix.TIOCSTI}, no},
				{"ioctl", []uint64{0, 1<<32 | unix.TIOCSTI}, no}, // the kernel takes an int
				{"ioctl", []uint64{0, 0x541c}, no},
				{"shmget", []uint64{0, 4096, 0o600}, no},
				{"socket", []uint64{unix.AF_UNIX, unix.SOCK_STREAM, 0}, yes},
				{"socket", []uint64{1<<32 | unix.AF_UNIX, unix.SOCK_STREAM, 0}, yes}, // the kernel takes an int
				{"socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW, 0}, yes},
				{"socket", []uint64{unix.AF_UNSPEC, unix.SOCK_STREAM, 0}, shut},
				{"socket", []uint64{unix.AF_INET, unix.SOCK_STREAM, 0}, shut},
				{"socket", []uint64{1<<32 | unix.AF_INET, unix.SOCK_STREAM, 0}, shut},
				{"socket", []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, shut},
				{"socket", []uint64{unix.AF_INET6, unix.SOCK_DGRAM, 0}, shut},
				{"socket", []uint64{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, shut},
				{"socket", []uint64{unix.AF_PACKET, unix.SOCK_RAW, 0}, shut},
				{"socketpair", []uint64{unix.AF_UNIX, unix.SOCK_STREAM, 0, 4096}, yes},
				{"socketpair", []uint64{unix.AF_TIPC, unix.SOCK_RDM, 0, 4096}, shut},
				{"socketcall", []uint64{1, 4096}, shut},
			} {
				if _, ok := number[c.call]; !ok { // this processor does not have it
					continue
				}
				if got := verdictOf(t, filter, auditArch[a], number[c.call], c.args...); got != c.want {
					t.Errorf("%s: %s%x: got %#x, want %#x", names[a], c.call, c.args, got, c.want)
				}
			}
			// What has no rule is allowed; what nobody has looked at does not exist.
			for n := range uint32(newestCall + 1) {
				if got := verdictOf(t, filter, auditArch[a], n); !ruled(a, n) && got != yes {
					t.Errorf("%s: call %d: got %#x", names[a], n, got)
				}
			}
			for n, want := range map[uint32]uint32{
				newestCall + 1: what, 1 << 30: what, 1<<30 | 302: what, 1<<32 - 1: what,
				armFirst + 5: yes, armLast + 1: what,
			} {
				if a != arm && n == armFirst+5 {
					want = what
				}
				if got := verdictOf(t, filter, auditArch[a], n); got != want {
					t.Errorf("%s: call %#x: got %#x, want %#x", names[a], n, got, want)
				}
			}
		}
		for _, foreign := range []uint32{
			0, unix.AUDIT_ARCH_RISCV64, auditArch[(kinds[0]+2)%abis],
			auditArch[(kinds[1]+2)%abis],
		} {
			if got := verdictOf(t, filter, foreign, 0); got != unix.SECCOMP_RET_KILL_PROCESS {
				t.Errorf("%s: a call of %#x: got %#x", processor, foreign, got)
			}
		}
	}
}

func ruled(a abi, number uint32) bool {
	for _, c := range ruledCalls {
		if c.numbers[a] == int(number) {
			return true
		}
	}
	return false
}

// For a processor without a filter there is no sandbox.
func TestThereIsNoFilterForEveryProcessor(t *testing.T) {
	if got := filterOf("riscv64", all); got != nil {
		t.Errorf("got %v", got)
	}
}
