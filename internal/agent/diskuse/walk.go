package diskuse

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"golang.org/x/sys/unix"
)

// Space is what files take of a disk: bytes, and files with folders.
type Space struct{ Bytes, Inodes int64 }

const (
	// batch is how many bytes of entries are read of a folder at once, deepBatch that of a folder below deep others: what
	// was read and not entered yet is kept for each. The longest entry has 280 bytes.
	batch, deepBatch = 8192, 512
	deep             = 64
	// maxDepth is how deep folders within folders are followed. No program needs as much.
	maxDepth = 10_000
	// header is the length of an entry's fixed part: inode, offset, length and type.
	header = 19
)

// openFolder is how folders are opened: a link is none, and nothing waits.
const openFolder = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC

// walk adds up what is below a folder, in blocks of the disk. It does not leave the file
// system, and counts a file with several names once: each name its part.
type walk struct {
	root  string
	fd    int // of the innermost folder, -1 if it must be found again
	chain []folder
	bytes float64
	count float64
	deep  bool
	depth int // how deep folders are followed
}

// folder is one on the way from the root to where the walk is.
type folder struct {
	name     string
	dev, ino uint64
	offset   int64    // where to read on
	ended    bool     // all of it was read
	inside   []string // folders in it that were read, and not entered yet
}

func newWalk(root string) *walk { return &walk{root: root, fd: -1, depth: maxDepth} }

func (w *walk) close() {
	if w.fd >= 0 {
		_ = unix.Close(w.fd)
		w.fd = -1
	}
}

// space is what was found so far.
func (w *walk) space() Space {
	return Space{Bytes: int64(math.Round(w.bytes)), Inodes: int64(math.Round(w.count))}
}

// step does a little more: it reads some entries, or goes to another folder. It returns
// how many entries it looked at, and whether all was walked. What goes away meanwhile is
// left out, and so is a root that is not there; an error is about the root.
func (w *walk) step() (looked int, done bool, err error) {
	if w.fd < 0 {
		if done, err := w.find(); done || err != nil {
			return 1, done, err
		}
	}
	top := &w.chain[len(w.chain)-1]
	switch {
	case len(top.inside) > 0:
		name := top.inside[len(top.inside)-1]
		top.inside = top.inside[:len(top.inside)-1]
		w.enter(name)
		return 1, false, nil
	case !top.ended:
		return w.read(top), false, nil
	case len(w.chain) == 1:
		w.close()
		return 1, true, nil
	}
	w.leave()
	return 1, false, nil
}

// find opens the innermost folder again, or the one that is left of the way to it. done
// means that there is no root.
func (w *walk) find() (done bool, err error) {
	fd, err := unix.Open(w.root, openFolder, 0)
	if errors.Is(err, unix.ENOENT) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("measure %s: %w", w.root, err)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		_ = unix.Close(fd)
		return false, fmt.Errorf("measure %s: %w", w.root, err)
	}
	if len(w.chain) == 0 {
		w.add(&stat)
		w.chain = []folder{{dev: stat.Dev, ino: stat.Ino}}
	} else if w.chain[0].dev != stat.Dev || w.chain[0].ino != stat.Ino {
		_ = unix.Close(fd)
		return true, nil // It is another folder by now, which the next walk is for.
	}
	for i := 1; i < len(w.chain); i++ {
		next, err := unix.Openat(fd, w.chain[i].name, openFolder, 0)
		if err != nil || !w.chain[i].is(next) {
			if err == nil {
				_ = unix.Close(next)
			}
			w.chain = w.chain[:i] // It went away, or elsewhere.
			break
		}
		_ = unix.Close(fd)
		fd = next
	}
	w.fd = fd
	w.seek()
	return false, nil
}

// seek goes on reading a folder where that ended before.
func (w *walk) seek() {
	top := &w.chain[len(w.chain)-1]
	if _, err := unix.Seek(w.fd, top.offset, unix.SEEK_SET); err != nil {
		top.ended = true
	}
}

func (f *folder) is(fd int) bool {
	var stat unix.Stat_t
	return unix.Fstat(fd, &stat) == nil && stat.Dev == f.dev && stat.Ino == f.ino
}

// enter goes into a folder.
func (w *walk) enter(name string) {
	fd, err := unix.Openat(w.fd, name, openFolder, 0)
	if err != nil {
		return // It went away, or nobody may look into it.
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Dev != w.chain[0].dev {
		_ = unix.Close(fd)
		return
	}
	_ = unix.Close(w.fd)
	w.fd = fd
	w.chain = append(w.chain, folder{name: name, dev: stat.Dev, ino: stat.Ino})
}

// leave goes to the folder above. If this one was moved meanwhile, that is not the one
// where ".." leads, and the way is looked for from the root.
func (w *walk) leave() {
	w.chain = w.chain[:len(w.chain)-1]
	above, err := unix.Openat(w.fd, "..", openFolder, 0)
	w.close()
	if err != nil {
		return
	}
	if !w.chain[len(w.chain)-1].is(above) {
		_ = unix.Close(above)
		return
	}
	w.fd = above
	w.seek()
}

// read looks at the next entries of the innermost folder.
func (w *walk) read(top *folder) (looked int) {
	size := batch
	if len(w.chain) > deep {
		size = deepBatch
	}
	buffer := make([]byte, size)
	n, err := unix.Getdents(w.fd, buffer)
	if n <= 0 || err != nil {
		top.ended = true
		return 1
	}
	for entries := buffer[:n]; len(entries) > header; looked++ {
		length := int(binary.NativeEndian.Uint16(entries[16:]))
		if length <= header || length > len(entries) {
			break
		}
		top.offset = int64(binary.NativeEndian.Uint64(entries[8:]))
		name, _, _ := bytes.Cut(entries[header:length], []byte{0})
		w.look(top, strings.Clone(string(name)))
		entries = entries[length:]
	}
	return looked
}

// look counts one entry.
func (w *walk) look(top *folder, name string) {
	if name == "." || name == ".." {
		return
	}
	var stat unix.Stat_t
	if err := unix.Fstatat(w.fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT); err != nil ||
		stat.Dev != w.chain[0].dev {
		return
	}
	w.add(&stat)
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return
	}
	if len(w.chain) >= w.depth {
		w.deep = true
		return
	}
	top.inside = append(top.inside, name)
}

func (w *walk) add(stat *unix.Stat_t) {
	part := 1.0
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR && stat.Nlink > 1 {
		part = 1 / float64(stat.Nlink)
	}
	w.bytes += part * float64(stat.Blocks) * 512
	w.count += part
}
