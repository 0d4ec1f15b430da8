package network

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/testenv/needs"
)

// hostLocal runs the plugin that gives addresses. Its configuration names the folder of its notes.
func hostLocal(t *testing.T, dir, command, sandbox string) string {
	t.Helper()
	const plugin = "/usr/lib/cni/host-local"
	_, err := os.Stat(plugin)
	if err != nil {
		t.Skipf("needs the CNI plugin host-local: %v", err)
	}
	cmd := exec.Command(plugin)
	cmd.Env = []string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + sandbox, "CNI_IFNAME=" + podDevice,
		"CNI_NETNS=/proc/self/ns/net", "CNI_PATH=/usr/lib/cni"}
	cmd.Stdin = strings.NewReader(`{"cniVersion": "0.4.0", "name": "` + networkName + `", "type": "bridge", "ipam":
		{"type": "host-local", "dataDir": "` + dir + `", "ranges": [[{"subnet": "10.99.0.0/29"}]]}}`)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("host-local %s: %v: %s", command, err, out)
	}
	return string(out)
}

// Whoever empties /run takes the notes of the addresses that pods have.
func TestAddressesOfPodsAreNotGivenTwice(t *testing.T) {
	needs.Root(t, "the plugin runs as root")
	dir := t.TempDir()
	notes := filepath.Join(dir, networkName)
	for _, sandbox := range []string{"first", "second"} {
		hostLocal(t, dir, "ADD", sandbox)
	}
	held := map[string]string{"10.99.0.2": "first", "10.99.0.3": "second"}
	missing, err := LeasesIn(notes).Note(held)
	if err != nil || len(missing) > 0 {
		t.Fatalf("%v is missing, %v: the plugin has another form of notes", missing, err)
	}
	err = os.RemoveAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	missing, err = LeasesIn(notes).Note(held)
	if err != nil || !slices.Equal(missing, []string{"10.99.0.2", "10.99.0.3"}) {
		t.Fatalf("%v was missing, %v, want both", missing, err)
	}
	if given := hostLocal(t, dir, "ADD", "third"); !strings.Contains(given, `"10.99.0.4/29"`) {
		t.Errorf("the next pod gets an address that another one has:\n%s", given)
	}
	// What was noted in the plugin's place is given back by the plugin.
	hostLocal(t, dir, "DEL", "first")
	if _, err := os.Stat(filepath.Join(notes, "10.99.0.2")); !os.IsNotExist(err) {
		t.Errorf("the address of a pod that is gone stays in use: %v", err)
	}
}
