package config

import (
	"os"
	"path/filepath"
	"testing"
)

func TestResolverFileThatHelpsPods(t *testing.T) {
	for _, c := range []struct {
		what, etc, resolved, want string
	}{
		{"a plain file", "nameserver 192.0.2.1\n", "", "etc/resolv.conf"},
		{"none", "", "", "etc/resolv.conf"},
		{"a name server on the machine itself, and nothing else", "nameserver 127.0.0.53\n", "", "etc/resolv.conf"},
		{"systemd-resolved", "nameserver 127.0.0.53\nsearch lan\n", "nameserver 192.0.2.1\n", "run/systemd/resolve/resolv.conf"},
		{"systemd-resolved beside others", "nameserver 127.0.0.53\nnameserver 192.0.2.1\n", "nameserver 192.0.2.1\n", "etc/resolv.conf"},
	} {
		root := t.TempDir()
		for name, content := range map[string]string{"etc/resolv.conf": c.etc, "run/systemd/resolve/resolv.conf": c.resolved} {
			if content == "" {
				continue
			}
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := findResolvConf(root); got != filepath.Join(root, c.want) {
			t.Errorf("%s: took %s, want %s", c.what, got, c.want)
		}
	}
}
