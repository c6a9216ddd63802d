package changes

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"

	"noused/internal/regular"
)

// A manifest is a file beside the objects: manifestMagic, the fields in their order, numbers
// as varints and texts with their length before them, and a checksum.
const manifestMagic = "nousedm2"

// maxManifest bounds that file, in bytes.
const maxManifest = 1 << 30

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode writes it to a file, or wherever.
func (m *manifest) encode(to io.Writer) error {
	sum := crc32.New(castagnoli)
	e := encoder{to: bufio.NewWriterSize(io.MultiWriter(to, sum), 64<<10)}
	e.bytes([]byte(manifestMagic))
	e.text(m.Top)
	e.text(m.GitDir)
	e.stamp(m.Index)
	e.stamp(m.Exclude)
	e.bytes(m.Rules[:])
	e.number(m.Bytes)
	e.number(m.Count)
	e.number(int64(len(m.Folders)))
	for i := range m.Folders {
		f := &m.Folders[i]
		e.text(f.Path)
		e.number(int64(f.Mode))
		e.stamp(f.Stamp)
		e.stamp(f.Ignore)
		e.flag(f.Racy)
		e.number(int64(len(f.Files)))
		for j := range f.Files {
			is := &f.Files[j]
			e.text(is.Name)
			e.number(int64(is.State.Mode))
			e.bytes(is.State.OID[:])
			e.text(is.State.Left)
			e.stamp(is.Stamp)
			e.flag(is.Racy)
		}
		e.number(int64(len(f.Ignored)))
		for _, name := range f.Ignored {
			e.text(name)
		}
	}
	if err := e.to.Flush(); err != nil { // it fails if a write before it did
		return err
	}
	_, err := to.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32()))
	return err
}

type encoder struct {
	to  *bufio.Writer
	buf [binary.MaxVarintLen64]byte
}

func (e *encoder) bytes(b []byte) { _, _ = e.to.Write(b) }
func (e *encoder) number(n int64) { e.bytes(binary.AppendVarint(e.buf[:0], n)) }
func (e *encoder) text(s string)  { e.number(int64(len(s))); _, _ = e.to.WriteString(s) }
func (e *encoder) flag(b bool) {
	if b {
		e.number(1)
		return
	}
	e.number(0)
}

func (e *encoder) stamp(s stamp) {
	for _, n := range []int64{s.Mtime, s.Ctime, s.Size, s.Ino} {
		e.number(n)
	}
}

// errDamaged says that a file of ours is not as it was written.
var errDamaged = errors.New("the record of the folder is damaged, or of another version")

func decodeManifest(text []byte) (*manifest, error) {
	if len(text) < len(manifestMagic)+4 || string(text[:len(manifestMagic)]) != manifestMagic {
		return nil, errDamaged
	}
	body, sum := text[:len(text)-4], binary.LittleEndian.Uint32(text[len(text)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, errDamaged
	}
	d := decoder{in: string(body[len(manifestMagic):])}
	m := &manifest{Top: d.text(), GitDir: d.text(), Index: d.stamp(), Exclude: d.stamp(), Rules: d.oid()}
	m.Bytes, m.Count = d.number(), d.number()
	for range d.count() {
		f := folder{Path: d.text(), Mode: uint32(d.number()), Stamp: d.stamp(), Ignore: d.stamp(), Racy: d.number() == 1}
		n := d.count()
		f.Files = make([]file, 0, n)
		for range n {
			f.Files = append(f.Files, file{
				Name: d.text(), State: State{uint32(d.number()), d.oid(), d.text()}, Stamp: d.stamp(), Racy: d.number() == 1,
			})
		}
		for range d.count() {
			f.Ignored = append(f.Ignored, d.text())
		}
		m.Folders = append(m.Folders, f)
	}
	if d.bad || d.in != "" {
		return nil, errDamaged
	}
	return m, nil
}

// decoder reads what an encoder wrote. The texts share the memory of the whole.
type decoder struct {
	in  string
	bad bool
}

func (d *decoder) number() int64 {
	var n uint64
	for i := 0; i < len(d.in) && i < binary.MaxVarintLen64; i++ {
		n |= uint64(d.in[i]&0x7f) << (7 * i)
		if d.in[i] < 0x80 {
			d.in = d.in[i+1:]
			return int64(n>>1) ^ -int64(n&1)
		}
	}
	d.bad, d.in = true, ""
	return 0
}

// count is a number of things of which each takes a byte at least.
func (d *decoder) count() int64 {
	n := d.number()
	if n < 0 || n > int64(len(d.in)) {
		d.bad, d.in = true, ""
		return 0
	}
	return n
}

func (d *decoder) take(n int64) string {
	if n < 0 || n > int64(len(d.in)) {
		d.bad, d.in = true, ""
		return ""
	}
	s := d.in[:n]
	d.in = d.in[n:]
	return s
}

func (d *decoder) text() string { return d.take(d.count()) }

func (d *decoder) oid() (o OID) {
	copy(o[:], d.take(int64(len(o))))
	return o
}

func (d *decoder) stamp() stamp { return stamp{d.number(), d.number(), d.number(), d.number()} }

// readManifest reads the file; nil where there is none, or it is damaged. The error is that there
// is no memory for it, and for a second one.
func readManifest(ctx context.Context, mem *memory, path string) (*manifest, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, nil //nolint:nilerr // it is recorded anew
	}
	if err := mem.take(ctx, int(min(info.Size(), maxManifest))*manifestTimes); err != nil {
		return nil, err
	}
	text, err := regular.Read(path, min(info.Size(), maxManifest))
	if err != nil {
		return nil, nil //nolint:nilerr // as above
	}
	m, err := decodeManifest(text)
	if err != nil {
		return nil, nil //nolint:nilerr // as above
	}
	return m, nil
}

// writeManifest writes the file. It is whole, or as it was.
func writeManifest(path string, m *manifest) error { return writeFile(path, m.encode) }

// writeFile is not durable: what is lost with the power is recorded anew.
func writeFile(path string, write func(to io.Writer) error) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err = errors.Join(write(f), f.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	return err
}

// remove removes a file that need not be there.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
