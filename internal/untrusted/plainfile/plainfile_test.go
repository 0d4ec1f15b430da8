package plainfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOpensRegularFilesOnly(t *testing.T) {
	base := t.TempDir()
	root, outside := filepath.Join(base, "root"), filepath.Join(base, "outside")
	secret := filepath.Join(outside, "secret")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(root, "pod", "main"), 0o755), os.Mkdir(outside, 0o755),
		os.WriteFile(secret, []byte("secret"), 0o600), os.WriteFile(filepath.Join(root, "pod", "main", "0.log"), []byte("log"), 0o600),
		os.Symlink(secret, filepath.Join(root, "link")), os.Symlink("pod/main/0.log", filepath.Join(root, "inside")),
		os.Symlink(outside, filepath.Join(root, "folder")), unix.Mkfifo(filepath.Join(root, "fifo"), 0o600),
		os.Symlink("/proc/self/fd/0", filepath.Join(root, "magic")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]error{
		"pod/main/0.log": nil, "link": ErrNotPlain, "inside": ErrNotPlain, "folder/secret": ErrNotPlain, "fifo": ErrNotPlain, "pod": ErrNotPlain,
		"magic": ErrNotPlain, "gone": fs.ErrNotExist, "../outside/secret": unix.EXDEV, "pod/../../outside/secret": unix.EXDEV,
	} {
		f, err := Open(root, root+"/"+path)
		if !errors.Is(err, want) {
			t.Errorf("open %s: %v, want %v", path, err, want)
		}
		if err != nil {
			continue
		}
		if text, err := io.ReadAll(f); err != nil || string(text) != "log" {
			t.Errorf("%s has %q (%v)", path, text, err)
		}
		_ = f.Close()
	}
	// A link to the root itself is the operator's business.
	trusted := filepath.Join(base, "trusted")
	if err := os.Symlink(root, trusted); err != nil {
		t.Fatal(err)
	}
	f, err := Open(trusted, trusted+"/pod/main/0.log")
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
}

func TestFolders(t *testing.T) {
	base := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(base+"/below/pod", 0o755), os.Mkdir(base+"/outside", 0o755), os.Symlink(base+"/outside", base+"/below/link"),
		os.WriteFile(base+"/outside/secret", nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Folder(base+"/below", base+"/below/link"); !errors.Is(err, ErrNotPlain) && !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("a link was opened as a folder: %v", err)
	}
	folder, err := Folder(base+"/below", base+"/below/pod")
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	// The folder is this one even when its name is another's by now.
	for _, err := range []error{os.Rename(base+"/below/pod", base+"/below/moved"), os.Symlink(base+"/outside", base+"/below/pod"), folder.WriteFile("new", nil, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(base + "/below/moved/new"); err != nil {
		t.Errorf("the file is not in the folder that was opened: %v", err)
	}
}
