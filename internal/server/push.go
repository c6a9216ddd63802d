package server

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxPieces is how many pieces are written at a time, as many as the kernel takes.
const maxPieces = 1024

// push writes pieces to a client for as long as that reads. It fails with a timeout once the
// client has taken nothing for as long as limit says, or until the deadline that somebody
// else has set; 0 is for ever. limit is asked again and again, with how many bytes have
// been written. What a client takes is seen in steps of some 36 KiB, as the kernel counts
// it. At most maxPieces; what p has is used up.
func push(conn *net.UnixConn, p [][]byte, limit func(done int) time.Duration) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	for done := 0; len(p) > 0; {
		n, err := writeSome(raw, p, false)
		done += n
		if p = behind(p, n); len(p) == 0 || err != nil && !isTimeout(err) { // of a deadline that has served
			return err
		}
		waits := unread(raw)
		arm(conn, func() time.Duration { return limit(done) })
		n, err = writeSome(raw, p, true)
		done += n
		p = behind(p, n)
		if isTimeout(err) && unread(raw) < waits {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// behind is what is left of pieces after so many bytes.
func behind(p [][]byte, n int) [][]byte {
	for len(p) > 0 && n >= len(p[0]) {
		n -= len(p[0])
		p = p[1:]
	}
	if n > 0 {
		p[0] = p[0][n:]
	}
	return p
}

// writeSome writes what fits, and with wait waits until there is some.
func writeSome(raw syscall.RawConn, p [][]byte, wait bool) (n int, err error) {
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		for {
			if n, failed = unix.Writev(int(fd), p); failed != unix.EINTR {
				break
			}
		}
		return !wait || failed != unix.EAGAIN
	})
	if err == nil && failed != unix.EAGAIN {
		err = failed
	}
	return max(n, 0), err
}

// unread is how much of what was written the client has not taken.
func unread(raw syscall.RawConn) (n int) {
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return n
}

// arm sets the write deadline. Who makes the limit shorter does so before setting a
// deadline too, so that the shorter one counts.
func arm(conn *net.UnixConn, limit func() time.Duration) {
	for d := limit(); d > 0; {
		_ = conn.SetWriteDeadline(time.Now().Add(d))
		next := limit()
		if next >= d {
			return
		}
		d = next
	}
}
