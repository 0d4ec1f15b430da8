package encryption

import (
	"bytes"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/testenv/needs"
)

func keysOf(t *testing.T, names ...string) (out Keys) {
	t.Helper()
	for _, name := range names {
		if name == Plain {
			out = append(out, Key{})
			continue
		}
		k, err := NewKey(name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, k)
	}
	return out
}

func TestFileOfKeys(t *testing.T) {
	dir := t.TempDir()
	for _, names := range [][]string{{"key-1"}, {"key-1", "key-2"}, {"", "key-1"}, {"key-1", ""}} {
		want := keysOf(t, names...)
		written, err := Write(File(dir), want)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(File(dir)); err != nil || info.Mode() != 0o600 {
			t.Errorf("the file is %v, %v", info, err)
		}
		read, err := Read(File(dir))
		if err != nil || !bytes.Equal(read, written) {
			t.Fatalf("read %s, %v, want %s", read, err, written)
		}
		got, err := Decode(read)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%q: %v, %v", names, got, err)
		}
		for i := range want {
			if got[i].Name != want[i].Name || !bytes.Equal(got[i].Secret, want[i].Secret) {
				t.Errorf("%q: %v, want %v", names, got, want)
			}
		}
		// Comments and order of fields are a user's.
		if _, err := Decode(append([]byte("# mine\n"), read...)); err != nil {
			t.Errorf("with a comment: %v", err)
		}
	}
	if content, err := Read(filepath.Join(dir, "none")); content != nil || err != nil {
		t.Errorf("no file: %q, %v", content, err)
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	whole, err := Encode(keysOf(t, "key-1"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ content, want string }{
		"a short key":       {strings.Replace(string(whole), "secret: ", "secret: YQ== #", 1), "32 bytes in base64"},
		"no base64":         {strings.Replace(string(whole), "secret: ", "secret: '-' #", 1), "32 bytes in base64"},
		"another cipher":    {strings.Replace(string(whole), "secretbox", "aescbc", 1), "is not as Everynode makes it"},
		"other resources":   {strings.Replace(string(whole), "- secrets", "- secrets\n  - configmaps", 1), "is not as Everynode makes it"},
		"an unknown field":  {string(whole) + "more: 1\n", "cannot be understood"},
		"another kind":      {strings.Replace(string(whole), "kind: Enc", "kind: Dec", 1), "is not as Everynode makes it"},
		"two keys in one":   {strings.Replace(string(whole), "- name: key-1", "- name: key-0\n        secret: x\n      - name: key-1", 1), "is not as Everynode makes it"},
		"nothing like that": {"{", "cannot be understood"},
	} {
		if keys, err := Decode([]byte(c.content)); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, %v, want %q", name, keys, err, c.want)
		}
	}
	// However short a file was cut off, it is not taken for one with fewer keys.
	two, err := Encode(keysOf(t, "key-1", "key-2"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(two) - 1 {
		if keys, err := Decode(two[:n]); err == nil && len(keys) > 0 && len(keys) != 2 {
			t.Errorf("cut off after %d bytes it has the keys %q", n, keys.Names())
		}
	}
}

func TestKeyOf(t *testing.T) {
	for value, want := range map[string]string{
		"k8s:enc:secretbox:v1:key-1:\x00\x01": "secretbox:key-1", "k8s:enc:aescbc:v1:mine:xx": "aescbc:mine", "k8s:enc:kms:v2:plugin:xx": "kms:plugin",
		"k8s\x00\n\x0c": Plain, "": Plain, "{}": Plain, "k8s:enc:": "unknown",
	} {
		if got := KeyOf([]byte(value)); got != want {
			t.Errorf("KeyOf(%q) = %q, want %q", value, got, want)
		}
	}
}

// TestKeysOnAnotherDisk is a file of keys that is a link to where it is kept.
func TestKeysOnAnotherDisk(t *testing.T) {
	data, safe := filepath.Join(t.TempDir(), "data[1]"), t.TempDir()
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	there := filepath.Join(safe, "keys.yaml")
	if err := os.Symlink(there, File(data)); err != nil {
		t.Fatal(err)
	}
	// The disk is not mounted: that is not the same as no keys, and none are made.
	if content, err := Read(File(data)); err == nil || !strings.Contains(err.Error(), "is a link to "+there) {
		t.Errorf("a link to nothing: %q, %v", content, err)
	}
	if _, err := Write(File(data), keysOf(t, "key-1")); err == nil || !strings.Contains(err.Error(), "mount what holds it") {
		t.Errorf("written at a link to nothing: %v", err)
	}
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(safe, ".keys.yaml-123")
	if err := os.WriteFile(left, []byte("a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := RemoveUnfinished(File(data)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("what was never finished is there: %v", err)
	}
	written, err := Write(File(data), keysOf(t, "key-1", "key-2"))
	if err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(File(data)); err != nil || to != there {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if got, err := os.ReadFile(there); err != nil || !bytes.Equal(got, written) {
		t.Errorf("there is %q, %v", got, err)
	}
	if beside, _ := os.ReadDir(data); len(beside) != 1 {
		t.Errorf("beside the data there is %v", beside)
	}
	// Those that another server has replaced come to the same place.
	if err := WriteEncoded(File(data), []byte("from another server")); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(there); err != nil || string(got) != "from another server" {
		t.Errorf("from another server there is %q, %v", got, err)
	}
	if to, err := os.Readlink(File(data)); err != nil || to != there {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	// A data folder whose name is a pattern.
	if err := os.Remove(File(data)); err != nil {
		t.Fatal(err)
	}
	left = filepath.Join(data, ".encryption.yaml-123")
	if err := os.WriteFile(left, []byte("a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := RemoveUnfinished(File(data)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("in a folder with brackets it is there: %v", err)
	}
}

// TestKeysOfAnotherUser are such that the server could not read what root writes.
func TestKeysOfAnotherUser(t *testing.T) {
	needs.Root(t, "only root can give files away")
	dir := t.TempDir()
	if _, err := Write(File(dir), keysOf(t, "key-1")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(File(dir), 12345, 12345); err != nil {
		t.Fatal(err)
	}
	c := Change{DataDir: dir, Out: io.Discard, Rotate: true, Patience: time.Minute, Servers: nobody{}}
	if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "number 12345") || strings.Contains(err.Error(), "\n") {
		t.Errorf("a change as another user: %v", err)
	}
}

// TestFullDisk fails while a key is added. The file stays, and nothing beside it.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	before, err := Write(File(dir), keysOf(t, "key-1"))
	if err != nil {
		t.Fatal(err)
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 100, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	_, err = Write(File(dir), keysOf(t, "key-1", "key-2"))
	if restored := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); restored != nil {
		t.Fatal(restored)
	}
	if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "run this again") {
		t.Errorf("with a full disk: %v", err)
	}
	now, err := Read(File(dir))
	if err != nil || !bytes.Equal(now, before) {
		t.Errorf("the file is %q, %v", now, err)
	}
	if beside, _ := os.ReadDir(dir); len(beside) != 1 {
		t.Errorf("there are %v", beside)
	}
}

// nobody is a control plane that must not be asked.
type nobody struct{ Servers }
