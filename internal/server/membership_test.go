package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/server/folder"
	"github.com/everynode/everynode/internal/server/membership"
)

// A second server on the folder of one that runs changes nothing in it.
func TestPeerAddressIsKeptUnderTheLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	m := &membership.File{Name: "a", URL: "https://127.0.0.1:2380"}
	if err := m.Write(dir); err != nil {
		t.Fatal(err)
	}
	release, _, err := folder.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	o := config.Defaults()
	o.DataDir, o.Listen, o.PeerAddress = dir, []string{"127.0.0.1:0"}, "127.0.0.1:2381"
	if s, err := New(o); err == nil || !strings.Contains(err.Error(), "is in use by another") {
		if err == nil {
			s.release()
		}
		t.Fatalf("a second server: %v", err)
	}
	if now, err := membership.Read(dir); err != nil || now.URL != m.URL {
		t.Errorf("the address is %+v, %v", now, err)
	}
	release()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.release()
	if now, err := membership.Read(dir); err != nil || now.URL != "https://127.0.0.1:2381" {
		t.Errorf("the address that it was given is not kept: %+v, %v", now, err)
	}
}
