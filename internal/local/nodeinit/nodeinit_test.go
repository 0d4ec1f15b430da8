package nodeinit

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReadResolvConf(t *testing.T) {
	for _, c := range []struct {
		name     string
		link     bool
		resolved string
		want     string
	}{
		{"a plain file", false, "nameserver 192.0.2.1\n", "nameserver 127.0.0.53\n"},
		{"systemd-resolved on the loopback interface", true, "nameserver 192.0.2.1\n", "nameserver 192.0.2.1\n"},
		{"systemd-resolved without its own file", true, "", "nameserver 127.0.0.53\n"},
	} {
		root := t.TempDir()
		etc, resolved := filepath.Join(root, "etc"), filepath.Join(root, "run/systemd/resolve")
		for _, dir := range []string{etc, resolved} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		stub := filepath.Join(etc, "resolv.conf")
		if c.link {
			stub = filepath.Join(resolved, "stub-resolv.conf")
			if err := os.Symlink("../run/systemd/resolve/stub-resolv.conf", filepath.Join(etc, "resolv.conf")); err != nil {
				t.Fatal(err)
			}
		}
		files := map[string]string{stub: "nameserver 127.0.0.53\n"}
		if c.resolved != "" {
			files[filepath.Join(resolved, "resolv.conf")] = c.resolved
		}
		for path, content := range files {
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := readResolvConf(root); err != nil || string(got) != c.want {
			t.Errorf("%s: read %q (%v), want %q", c.name, got, err, c.want)
		}
	}
}
