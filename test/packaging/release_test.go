package packaging

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/testenv/needs"
)

// TestRelease makes a release for this architecture, and looks at what is in it.
func TestRelease(t *testing.T) {
	if _, err := os.Stat("../../bin/everynode"); err != nil {
		t.Skip("bin/everynode is not built; run: make build")
	}
	if _, err := os.Stat("../../bin/helm-v4"); err != nil {
		t.Skip("bin/helm-v4 is not built; run: hack/helm.sh v4")
	}
	dir := t.TempDir()
	cmd := exec.Command("../../hack/release.sh", "v1.2.3-rc.1", dir)
	cmd.Env = append(os.Environ(), "ARCHS="+runtime.GOARCH, "LDFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program := "everynode-v1.2.3-rc.1-linux-" + runtime.GOARCH
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	for _, file := range []string{
		program, program + ".cdx.json", "everynode_1.2.3~rc.1_" + runtime.GOARCH + ".deb", "everynode-1.2.3~rc.1-1." + machine + ".rpm",
		"everynode-v1.2.3-rc.1-image.tar", "everynode-controller-1.2.3-rc.1.tgz", "everynode-v1.2.3-rc.1-manual.tar.gz",
	} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Errorf("the release has no %s: %v", file, err)
		}
	}
	sums := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	sums.Dir = dir
	if out, err := sums.CombinedOutput(); err != nil || strings.Count(string(out), ": OK") != 7 {
		t.Errorf("the checksums: %v\n%s", err, out)
	}
	listsModules(t, filepath.Join(dir, program+".cdx.json"))
	t.Run("rpm", func(t *testing.T) { livesAsRPM(t, filepath.Join(dir, "everynode-1.2.3~rc.1-1."+machine+".rpm")) })
}

// listsModules compares what the program is said to be made of with go.mod.
func listsModules(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		BOMFormat  string `json:"bomFormat"`
		Components []struct{ Name, Version, PURL string }
	}
	if err := json.Unmarshal(text, &bom); err != nil || bom.BOMFormat != "CycloneDX" {
		t.Fatalf("the list of modules is a %q (%v)", bom.BOMFormat, err)
	}
	listed := map[string]string{}
	for _, c := range bom.Components {
		listed[c.Name] = c.Version
	}
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"k8s.io/apiserver", "go.etcd.io/etcd/server/v3", "github.com/spf13/cobra"} {
		if want := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(name) + ` (\S+)`).FindSubmatch(mod); want == nil || listed[name] != string(want[1]) {
			t.Errorf("%s is listed with the version %q, go.mod has %q", name, listed[name], want)
		}
	}
	if listed["std"] == "" {
		t.Error("Go itself is not listed")
	}
}

// rpmLife walks an .rpm through its life, in a copy of the machine's files.
const rpmLife = `
set -e
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cp "$2" "$1/root/everynode.rpm"
exec chroot "$1/root" sh -ec '
say() { echo "== $*"; }
rm -rf /var/lib/everynode /var/lib/everynode-agent /run/systemd /usr/bin/everynode /var/lib/rpm
mkdir -p /var/lib/rpm /proc
say install
rpm -i --nodeps /everynode.rpm
say version
everynode version
say modes
stat -c "%a %n" /usr/bin/everynode /etc/default/everynode-server /etc/default/everynode-agent
echo "# mine" >> /etc/default/everynode-agent
mkdir -p /var/lib/everynode/etcd
say upgrade
rpm -U --force --nodeps /everynode.rpm
say configuration
tail -n 1 /etc/default/everynode-agent
say remove
rpm -e everynode
say left
ls /usr/bin/everynode /lib/systemd/system/everynode-* /usr/share/man/man1/everynode* 2>/dev/null || true
say kept
ls -d /var/lib/everynode/*
'
`

func livesAsRPM(t *testing.T, file string) {
	needs.Root(t, "installing needs root")
	if _, err := exec.LookPath("rpm"); err != nil {
		t.Skip("no rpm here; apt-get install rpm")
	}
	said := lives(t, rpmLife, file, []claim{
		{"install", "systemctl enable --now everynode-agent", "a new user is told what to do next"},
		{"version", "Kubernetes API v1.", "the program runs"},
		{"modes", "755 /usr/bin/everynode\n644 /etc/default/everynode-server\n600 /etc/default/everynode-agent\n", "a join token is not for everybody"},
		{"configuration", "# mine\n", "an upgrade keeps what was configured"},
		{"remove", "/var/lib/everynode holds the data of a cluster and is kept", "the user is told what stays"},
		{"kept", "/var/lib/everynode/etcd\n", "data goes only by its owner's hand"},
	})
	if said["left"] != "" {
		t.Errorf("left are\n%s", said["left"])
	}
}

// TestChartOfACommit packs the chart of what is no tag: one commit of some hundreds begins
// with 0 and has digits alone, which is no part of a version.
func TestChartOfACommit(t *testing.T) {
	if _, err := os.Stat("../../bin/helm-v4"); err != nil {
		t.Skip("bin/helm-v4 is not built; run: hack/helm.sh v4")
	}
	for _, version := range []string{"0123456", "0123456-dirty", "eb0cb22", "devel", "v0.1.0-5-g0123456"} {
		dir := t.TempDir()
		if out, err := exec.Command("../../hack/chart.sh", version, dir).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", version, err, out)
		}
		if charts, err := filepath.Glob(filepath.Join(dir, "everynode-controller-*.tgz")); err != nil || len(charts) != 1 {
			t.Errorf("%s: the charts are %q (%v)", version, charts, err)
		}
	}
}
