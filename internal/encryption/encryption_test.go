package encryption

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
