package wholefile

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/testenv/needs"
)

// serveFolder and the others tell this program, when it is run once more, what file system to be, and which operation
// fails there.
const serveFolder, serveLinks, serveFails = "TEST_SERVE_FOLDER", "TEST_SERVE_LINKS", "TEST_SERVE_FAILS"

func TestMain(m *testing.M) {
	if dir := os.Getenv(serveFolder); dir != "" {
		fails, _ := strconv.Atoi(os.Getenv(serveFails)) // 0 for none
		fmt.Println(serveFlagless(dir, os.Getenv(serveLinks) != "", uint32(fails)))
		return
	}
	os.Exit(m.Run())
}

// mountFlagless mounts a file system in memory that knows no flags of renameat2, as NFS, CephFS and 9p do not.
func mountFlagless(t *testing.T, links string, fails int) (dir string) {
	t.Helper()
	needs.Root(t, "only root mounts file systems")
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip(err)
	}
	dir = t.TempDir()
	serves := exec.CommandContext(t.Context(), os.Args[0])
	serves.Env = append(os.Environ(), serveFolder+"="+dir, serveLinks+"="+links, serveFails+"="+strconv.Itoa(fails))
	out, err := serves.StdoutPipe()
	if err == nil {
		err = serves.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Unmount(dir, unix.MNT_DETACH)
		_ = serves.Wait()
	})
	if said, err := bufio.NewReader(out).ReadString('\n'); err != nil || said != "mounted\n" {
		t.Fatalf("mount a file system: %q, %v", said, err)
	}
	return dir
}

// A backup goes to another machine's disk, which is NFS for most.
func TestCreateWhereRenameKnowsNoFlags(t *testing.T) {
	for _, links := range []string{"", "yes"} {
		t.Run("links="+links, func(t *testing.T) {
			dir := mountFlagless(t, links, 0)
			path := filepath.Join(dir, "f")
			from := filepath.Join(dir, "from")
			if err := os.WriteFile(from, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE); !errors.Is(err, unix.EINVAL) {
				t.Fatalf("the file system answers %v to a flag", err)
			}
			if err := os.Remove(from); err != nil {
				t.Fatal(err)
			}
			if err := Create(path, 0o600, Bytes([]byte("first"))); err != nil {
				t.Fatal(err)
			}
			if err := Create(path, 0o600, Bytes([]byte("second"))); !errors.Is(err, os.ErrExist) {
				t.Errorf("%v, want that it is there", err)
			}
			content, err := os.ReadFile(path)
			if entries, _ := os.ReadDir(dir); err != nil || string(content) != "first" || len(entries) != 1 {
				t.Errorf("there is %q in %v, %v", content, entries, err)
			}
		})
	}
}

// What a file system of another machine cannot do is told, and leaves nothing that passes for whole.
func TestFailuresOfAFileSystem(t *testing.T) {
	for what, test := range map[string]struct {
		fails int
		links string
	}{
		"write":              {opWrite, "yes"},
		"fsync":              {opFsync, "yes"},
		"rename":             {opRename, ""},
		"fsync of the names": {opFsyncdir, "yes"},
	} {
		t.Run(what, func(t *testing.T) {
			dir := mountFlagless(t, test.links, test.fails)
			err := Create(filepath.Join(dir, "f"), 0o600, Bytes([]byte("content")))
			entries, listErr := os.ReadDir(dir)
			if !errors.Is(err, unix.EIO) || listErr != nil || len(entries) > 0 {
				t.Errorf("it says %v and leaves %v, %v", err, entries, listErr)
			}
		})
	}
	// Where a second name fails for whatever reason the file gets its name the other way.
	dir := mountFlagless(t, "yes", opLink)
	err := Create(filepath.Join(dir, "f"), 0o600, Bytes([]byte("content")))
	if err != nil {
		t.Error(err)
	}
}

// What was written is there after a loss of power under its name.
func TestNamesAreOnTheDisk(t *testing.T) {
	dir := mountFlagless(t, "yes", 0)
	synced := int64(0)
	for name, write := range map[string]func() error{
		"Write":  func() error { return Write(filepath.Join(dir, "a"), 0o600, Bytes([]byte("a"))) },
		"Create": func() error { return Create(filepath.Join(dir, "b"), 0o600, Bytes([]byte("b"))) },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() == synced {
			t.Errorf("%s does not have the name on the disk", name)
		}
		synced = info.Size()
	}
}

// Operations of the kernel's protocol for file systems in user space (include/uapi/linux/fuse.h).
const (
	opLookup, opForget, opGetattr, opSetattr, opUnlink, opRename, opLink          = 1, 2, 3, 4, 10, 12, 13
	opOpen, opRead, opWrite, opStatfs, opRelease, opFsync, opFlush, opInit        = 14, 15, 16, 17, 18, 20, 25, 26
	opOpendir, opReaddir, opReleasedir, opFsyncdir, opAccess, opCreate, opBatched = 27, 28, 29, 30, 34, 35, 42
)

// flagless is the file system: files by number, and the names in its one folder. The size of that folder is how often
// it was synced.
type flagless struct {
	links  bool
	fails  uint32 // the operation that does
	synced uint64
	files  map[uint64][]byte
	names  map[string]uint64
	next   uint64
}

// serveFlagless mounts one and serves it until it is unmounted.
func serveFlagless(dir string, links bool, fails uint32) error {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := unix.Mount("flagless", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)); err != nil {
		return err
	}
	fmt.Println("mounted")
	f := &flagless{links: links, fails: fails, files: map[uint64][]byte{}, names: map[string]uint64{}, next: 2}
	for buffer := make([]byte, 1<<20); ; {
		n, err := unix.Read(fd, buffer)
		if errors.Is(err, unix.ENODEV) {
			return nil
		}
		if err != nil {
			continue
		}
		op := binary.LittleEndian.Uint32(buffer[4:])
		if op == opForget || op == opBatched {
			continue
		}
		out, failed := f.do(op, binary.LittleEndian.Uint64(buffer[16:]), buffer[40:n])
		answer := le(nil, uint32(16+len(out)), int32(-failed))
		answer = append(append(answer, buffer[8:16]...), out...)
		_, _ = unix.Write(fd, answer) // who asked has gone if this fails
	}
}

// le appends numbers as the kernel reads them.
func le(to []byte, numbers ...any) []byte {
	var out bytes.Buffer
	for _, n := range numbers {
		_ = binary.Write(&out, binary.LittleEndian, n) // to memory
	}
	return append(to, out.Bytes()...)
}

func (f *flagless) attributes(node uint64) []byte {
	mode, size := uint32(0o100600), uint64(len(f.files[node]))
	if node == 1 {
		mode, size = 0o40755, f.synced
	}
	return le(nil, node, size, (size+511)/512, [3]uint64{}, [3]uint32{}, mode, uint32(1), [3]uint32{}, uint32(4096), uint32(0))
}

func (f *flagless) entry(node uint64) []byte {
	return append(le(nil, node, [4]uint64{}), f.attributes(node)...)
}

// do carries one request out; it returns what to answer, or the number of the error.
func (f *flagless) do(op uint32, node uint64, in []byte) (out []byte, failed unix.Errno) {
	name := func(from int) string { return string(bytes.TrimRight(in[from:], "\x00")) }
	number := func(at int) uint64 { return binary.LittleEndian.Uint64(in[at:]) }
	if op == f.fails {
		return nil, unix.EIO
	}
	switch op {
	case opInit:
		return le(nil, uint32(7), uint32(31), uint32(65536), uint32(0), uint16(16), uint16(12), uint32(131072), uint32(1),
			uint16(32), uint16(0), [8]uint32{}), 0
	case opLookup:
		if of, ok := f.names[name(0)]; ok {
			return f.entry(of), 0
		}
		return nil, unix.ENOENT
	case opGetattr, opSetattr:
		return append(le(nil, [2]uint64{}), f.attributes(node)...), 0
	case opOpen, opOpendir:
		return le(nil, node, uint64(0)), 0
	case opCreate:
		of := f.next
		f.next++
		f.files[of], f.names[name(16)] = []byte{}, of
		return append(f.entry(of), le(nil, of, uint64(0))...), 0
	case opWrite:
		at, size := number(8), binary.LittleEndian.Uint32(in[16:])
		f.files[node] = append(f.files[node][:at], in[40:40+size]...)
		return le(nil, size, uint32(0)), 0
	case opRead:
		content := f.files[node]
		return content[min(number(8), uint64(len(content))):], 0
	case opReaddir:
		return f.list(number(8)), 0
	case opUnlink:
		delete(f.names, name(0))
	case opRename:
		from, to, _ := bytes.Cut(bytes.TrimRight(in[8:], "\x00"), []byte{0})
		f.names[string(to)] = f.names[string(from)]
		delete(f.names, string(from))
	case opLink:
		if !f.links {
			return nil, unix.EPERM
		}
		f.names[name(8)] = number(0)
		return f.entry(number(0)), 0
	case opStatfs:
		return le(nil, [10]uint64{}), 0
	case opFsyncdir:
		f.synced++
	case opRelease, opFsync, opFlush, opReleasedir, opAccess:
	default:
		return nil, unix.ENOSYS // also a rename with flags
	}
	return nil, 0
}

func (f *flagless) list(from uint64) (out []byte) {
	if from > 0 {
		return nil
	}
	at := uint64(0)
	for name, node := range f.names {
		at++
		out = append(le(out, node, at, uint32(len(name)), uint32(8)), name...)
		for len(out)%8 > 0 {
			out = append(out, 0)
		}
	}
	return out
}
