package pki

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// server makes a directory of keys with what belongs to one server.
func serverKeys(t *testing.T, shared map[string][]byte, ip string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pki")
	if shared != nil {
		if err := ImportCluster(dir, shared); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := LoadOrCreate(dir, Options{ServerIPs: []net.IP{net.ParseIP(ip)}}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestKeysOfAnotherServerAreAdopted(t *testing.T) {
	first := serverKeys(t, nil, "10.0.0.1")
	export := func(dir string) map[string][]byte {
		t.Helper()
		files, err := ExportCluster(dir)
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	second := serverKeys(t, export(first), "10.0.0.2")
	for _, which := range []string{ClusterAuthority, NodeAuthority, ServiceAccounts} {
		for what, change := range map[string]func() error{
			"rotated":  func() error { return Rotate(first, which, time.Now()) },
			"finished": func() error { return Finish(first, which, time.Now()) },
		} {
			if what == "finished" && !exists(first, which+"-previous.crt") && !exists(first, which+"-previous.pub") {
				continue // the map's order
			}
			if err := change(); err != nil {
				t.Fatal(err)
			}
			if err := AdoptCluster(second, export(first), time.Now()); err != nil {
				t.Fatal(err)
			}
			if !maps.EqualFunc(export(first), export(second), func(a, b []byte) bool { return string(a) == string(b) }) {
				t.Errorf("%s %s: the second server has other files", which, what)
			}
			bundle, err := LoadOrCreate(second, Options{ServerIPs: []net.IP{net.ParseIP("10.0.0.2")}})
			if err != nil {
				t.Fatalf("%s %s: the second server does not start: %v", which, what, err)
			}
			if _, ips := bundle.ServingNames(); fmt.Sprint(ips[len(ips)-1]) != "10.0.0.2" {
				t.Errorf("%s %s: the certificate is for %v", which, what, ips)
			}
		}
	}
	whole := export(first)
	delete(whole, ClusterAuthority+".key")
	if err := AdoptCluster(second, whole, time.Now()); err == nil {
		t.Error("half of the keys are adopted")
	}
}

// What a server would not start with, others must not get from it.
func TestDamagedKeysAreNotAdopted(t *testing.T) {
	first := serverKeys(t, nil, "10.0.0.1")
	if err := errors.Join(Rotate(first, ClusterAuthority, time.Now()), Rotate(first, ServiceAccounts, time.Now())); err != nil {
		t.Fatal(err)
	}
	good, err := ExportCluster(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckCluster(good); err != nil {
		t.Fatal(err)
	}
	second := serverKeys(t, good, "10.0.0.2")
	damage := map[string]func(name string) []byte{
		"cut off":  func(name string) []byte { return good[name][:len(good[name])/2] },
		"of zeros": func(name string) []byte { return make([]byte, len(good[name])) },
		"emptied":  func(string) []byte { return nil },
		"exchanged": func(name string) []byte {
			return good[map[bool]string{true: NodeAuthority, false: ClusterAuthority}[name[0] == 'c']+filepath.Ext(name)]
		},
	}
	for name := range good {
		for what, damaged := range damage {
			if what == "exchanged" && !strings.HasSuffix(name, "ca.key") {
				continue // it is none of a pair
			}
			files := maps.Clone(good)
			files[name] = damaged(name)
			if err := AdoptCluster(second, files, time.Now()); err == nil {
				t.Errorf("%s is %s, and adopted", name, what)
			}
			if now, err := ExportCluster(second); err != nil || !maps.EqualFunc(now, good, bytes.Equal) {
				t.Fatalf("%s is %s: the other server's keys are changed (%v)", name, what, err)
			}
		}
	}
	// Before there was an authority for nodes, and one for API servers of others.
	for _, name := range []string{NodeAuthority, FrontAuthority} {
		delete(good, name+".crt")
		delete(good, name+".key")
	}
	if err := CheckCluster(good); err != nil {
		t.Errorf("keys of before there was an authority for nodes: %v", err)
	}
}

// A server that is killed in the middle starts, with the old keys or the new ones.
func TestAdoptingIsCutOff(t *testing.T) {
	first := serverKeys(t, nil, "10.0.0.1")
	before, err := ExportCluster(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(Rotate(first, ClusterAuthority, time.Now()), Rotate(first, NodeAuthority, time.Now()), Rotate(first, ServiceAccounts, time.Now())); err != nil {
		t.Fatal(err)
	}
	after, err := ExportCluster(first)
	if err != nil {
		t.Fatal(err)
	}
	full := serverKeys(t, before, "10.0.0.2")
	all := adoption(full, after)
	for cut := range len(all) + 1 {
		dir := serverKeys(t, before, "10.0.0.2")
		if err := applyAll(dir, adoption(dir, after)[:cut]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if _, err := LoadOrCreate(dir, Options{ServerIPs: []net.IP{net.ParseIP("10.0.0.2")}}); err != nil {
			t.Errorf("cut off after %d steps it does not start: %v", cut, err)
		}
		if err := AdoptCluster(dir, after, time.Now()); err != nil {
			t.Errorf("cut off after %d steps it does not go on: %v", cut, err)
		}
		if now, _ := os.ReadFile(filepath.Join(dir, ClusterAuthority+".crt")); string(now) != string(after[ClusterAuthority+".crt"]) {
			t.Errorf("cut off after %d steps it never has the new keys", cut)
		}
	}
}

// With an authority that is not good yet a server would not start: it is not taken, and nothing is changed.
func TestClusterAuthorityOfTheFutureIsNotTaken(t *testing.T) {
	for _, which := range []string{ClusterAuthority, NodeAuthority} {
		first := serverKeys(t, nil, "10.0.0.1")
		before, err := ExportCluster(first)
		if err != nil {
			t.Fatal(err)
		}
		second := serverKeys(t, before, "10.0.0.2")
		ahead := time.Now().Add(time.Hour)
		if err := Rotate(first, which, ahead); err != nil {
			t.Fatal(err)
		}
		files, err := ExportCluster(first)
		if err != nil {
			t.Fatal(err)
		}
		if err := AdoptCluster(second, files, time.Now()); err == nil || !strings.Contains(err.Error(), which+".crt: it is good from ") || !strings.Contains(err.Error(), "set the clocks") {
			t.Errorf("%s of the future: %v", which, err)
		}
		if now, err := ExportCluster(second); err != nil || !maps.EqualFunc(now, before, bytes.Equal) {
			t.Errorf("%s of the future: files were changed (%v)", which, err)
		}
		if _, err := LoadOrCreate(second, Options{ServerIPs: []net.IP{net.ParseIP("10.0.0.2")}}); err != nil {
			t.Errorf("%s of the future: the server does not start: %v", which, err)
		}
		if err := AdoptCluster(second, files, ahead); err != nil {
			t.Errorf("%s: not taken later: %v", which, err)
		}
	}
}
