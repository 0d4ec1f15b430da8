package arch

import (
	"regexp"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/files/datadir"
)

// etcdOfData says which minor version of etcd writes the database of each version of a data
// folder. A line is added with each version, and none is changed.
var etcdOfData = map[int]string{
	1: "v3.7",
}

// An etcd of an older minor version does not start on a database of a newer one. Going back to the
// program of before would end there without a word about what to do, unless datadir.Version says so.
func TestANewEtcdIsANewVersionOfTheData(t *testing.T) {
	want := etcdOfData[datadir.Version]
	if want == "" {
		t.Fatalf("no line of etcdOfData says which etcd writes data of version %d", datadir.Version)
	}
	if writers := writersOf(want); writers != 1 {
		t.Errorf("etcd %s writes data of %d versions, want 1", want, writers)
	}
	for _, module := range etcdModules(t) {
		if module.minor != want {
			t.Errorf("go.mod has %s %s, and data of version %d is that of etcd %s: raise datadir.Version, "+
				"add a line to etcdOfData, and test the start on a folder of the version before, and that "+
				"the program of before refuses the new one", module.path, module.minor, datadir.Version, want)
		}
	}
}

// writersOf counts the versions of data that the minor version of etcd writes.
func writersOf(minor string) (n int) {
	for _, other := range etcdOfData {
		if other == minor {
			n++
		}
	}
	return n
}

// etcdModule is a module of etcd in go.mod.
type etcdModule struct{ path, minor string }

// etcdModules lists the modules of etcd. The server's must be among them.
func etcdModules(t *testing.T) (all []etcdModule) {
	t.Helper()
	server := false
	for _, r := range readGoMod(t, "../../go.mod").Require {
		if !strings.HasPrefix(r.Path, "go.etcd.io/etcd/") {
			continue
		}
		server = server || r.Path == "go.etcd.io/etcd/server/v3"
		all = append(all, etcdModule{r.Path, regexp.MustCompile(`^v\d+\.\d+`).FindString(r.Version)})
	}
	if !server {
		t.Fatal("go.mod has no etcd server: this test looks for the wrong name")
	}
	return all
}
