package registry

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"noused/internal/proc"
	"noused/internal/tool"
	"noused/internal/tool/worker"
)

const (
	// maxLiving is how many processes live beyond one for each module.
	maxLiving = 32
	// maxPlaces is how many folders a module is kept ready for while nobody calls
	// it there.
	maxPlaces = 64
)

// place is a module in one folder. Its processes run there, and if it has a
// sandbox, that is what they may write.
type place struct {
	desc  *tool.Descriptor
	host  tool.Host
	is    inode
	calls int
	last  int // the higher, the later it was called

	vacated string // its key among the places once it is to be ended with its last call
}

// inode is a folder, whatever is in its place later.
type inode struct {
	major, minor uint32
	ino          uint64
	born         unix.StatxTimestamp
}

// findFolder finds a session's folder, whose path has no links: one that has some by now
// leads to another folder, which a tool that may write above it may have chosen. The
// error is a [tool.Fault], workdir_missing.
func findFolder(workdir string) (inode, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, workdir, 0, unix.STATX_TYPE|unix.STATX_INO|unix.STATX_BTIME, &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = unix.ENOTDIR
	}
	if real := proc.Resolve(workdir); err == nil && real != workdir {
		err = fmt.Errorf("it was moved or replaced: its path is a link by now, to %s", real)
	}
	if err != nil {
		return inode{}, tool.Faultf(tool.WorkdirMissing, "the session's folder %s cannot be used: %v", workdir, err)
	}
	return inode{st.Dev_major, st.Dev_minor, st.Ino, st.Btime}, nil
}

// at returns the module as it is in a folder, "" for the daemon's own, and keeps
// it there until leave is called. A module whose descriptor names a folder, or
// that is reached over http, is the same for all. Readable, where it is not empty, is
// what the module can read there although it is hidden: no other caller's processes can.
func (m *module) at(workdir, readable string) (_ *place, leave func(), _ error) {
	own := &place{desc: m.desc, host: m.host}
	if workdir == "" || m.desc.Everywhere() {
		return own, func() {}, nil
	}
	is, err := findFolder(workdir)
	if err != nil {
		return nil, nil, err
	}
	if workdir == m.desc.Workdir && readable == "" {
		return own, func() {}, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := workdir
	if readable != "" {
		key += "\x00" + readable
	}
	p := m.places[key]
	if p != nil && p.is != is { // the folder was removed and made again
		m.vacate(key)
		p = nil
	}
	if p == nil {
		m.thin()
		d := m.desc.In(workdir)
		d.Readable = readable
		p = &place{desc: d, host: m.mount(d), is: is}
		m.places[key] = p
	}
	m.calling++
	p.calls, p.last = p.calls+1, m.calling
	return p, func() { m.left(p) }, nil
}

func (m *module) left(p *place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.calls--; p.calls == 0 && p.vacated != "" {
		m.quit(p.vacated)
	}
}

// quit ends the module in a folder where nobody calls it. m.mu is held.
func (m *module) quit(key string) {
	p := m.places[key]
	delete(m.places, key)
	if p != nil {
		m.leaving.Go(func() { p.host.Close(m.ctx) })
	}
}

// thin forgets the folder that was not called in for longest where there are too
// many. m.mu is held.
func (m *module) thin() {
	oldest := ""
	for key, p := range m.places {
		if p.calls == 0 && (oldest == "" || p.last < m.places[oldest].last) {
			oldest = key
		}
	}
	if oldest != "" && len(m.places) >= maxPlaces {
		m.quit(oldest)
	}
}

// vacate ends the module in a place, once the calls there have ended. m.mu is held.
func (m *module) vacate(key string) {
	p := m.places[key]
	if p.calls == 0 {
		m.quit(key)
		return
	}
	delete(m.places, key)
	m.calling++
	p.vacated = fmt.Sprint("call ", m.calling) // no folder has that name
	m.places[p.vacated] = p
}

// endWhere ends the module wherever it can read that although it is hidden.
func (m *module) endWhere(readable string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, p := range m.places {
		if p.desc.Readable == readable && p.vacated == "" {
			m.vacate(key)
		}
	}
}

// closePlaces ends the module in all folders but its own, and waits for that. No
// call is under way, and none follows.
func (m *module) closePlaces(ctx context.Context) {
	m.mu.Lock()
	places := m.places
	m.places = nil
	m.mu.Unlock()
	var all sync.WaitGroup
	for _, p := range places {
		all.Go(func() { p.host.Close(ctx) })
	}
	all.Wait()
	m.leaving.Wait()
}

// adopt has the living processes of a host count among all others, and hears of its
// changes.
func (r *Registry) adopt(h tool.Host, d *tool.Descriptor) tool.Host {
	if s, ok := h.(interface{ Share(*worker.ProcessLimit) }); ok && d.Transport.Type != "http" {
		s.Share(r.processLimit)
	}
	if s, ok := h.(tool.Server); ok {
		s.Watch(func() { r.o.Changed(d.Name) })
	}
	return h
}
